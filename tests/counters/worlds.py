"""Environments and policies that cost next to nothing, and the same each time."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from producers.policy import Policy, open_graph
from producers.spaces import AnySpace
from producers.vector_entry import VectorEntryEnvironments
from producers.watchdog import Watchdog
from schemas.records import EnvDescription, SpaceField
from tests.unit.envs.graphs import graph_record, linear_q, version_record

EPISODE_STEPS = 15
"""With the reset 16 rows: unrolls of 16, 32, 48 steps are all alike."""

NUM_ACTIONS = 2
POLE = spaces.Box(-1, 1, (4,), np.float32)
FRAME = spaces.Box(0, 255, (84, 84), np.uint8)


class Clockwork(VectorEnv):
    """B environments whose episodes all end each 15 steps; resets in the next step.

    Observations are a square of 8 x 8 that moves over a black picture; or numbers which
    no compression finds a pattern in. However many environments there are, Python does
    as much.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, observation: spaces.Box, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space: AnySpace = observation
        self.single_action_space = spaces.Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(observation, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._is_picture = observation.dtype == np.uint8
        self._pictures = _pictures()
        self._places = np.arange(num_envs * 4, dtype=np.uint64).reshape(num_envs, 4)
        self._envs = np.arange(num_envs)
        self._steps = self._seen = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, actions):
        over = self._steps == EPISODE_STEPS
        self._steps = 0 if over else self._steps + 1
        rewards = np.full(self.num_envs, 0.0 if over else 1.0, np.float32)
        none = np.zeros(self.num_envs, np.bool_)
        ended = np.full(self.num_envs, self._steps == EPISODE_STEPS)
        return self._observe(), rewards, ended, none, {}

    def _observe(self):
        self._seen += 1
        if self._is_picture:
            return self._pictures[(self._steps + self._envs) % len(self._pictures)]
        mixed = _mixed(self._places + np.uint64(self._seen << 32))
        return ((mixed >> np.uint64(40)) / np.float64(1 << 24)).astype(np.float32)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Return numbers as good as random: SplitMix64, the same on every machine."""
    found = numbers
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return found ^ (found >> np.uint64(31))


def _pictures() -> np.ndarray:
    """Return pictures [16, 84, 84] that follow each other."""
    shown = np.zeros((16, 84, 84), np.uint8)
    for at, picture in enumerate(shown):
        picture[4 * at : 4 * at + 8, 2 * at : 2 * at + 8] = 200
    return shown


def clockwork(
    observation: spaces.Box, num_envs: int, watchdog: Watchdog
) -> VectorEntryEnvironments:
    """Return them as a worker has them."""
    return VectorEntryEnvironments(lambda: Clockwork(observation, num_envs), watchdog)


def clockwork_description(observation: spaces.Box) -> EnvDescription:
    """Return what a learner knows of them."""
    dtype = np.dtype(observation.dtype).str
    return EnvDescription(
        "Clockwork-v0",
        (SpaceField("", "box", dtype, tuple(observation.shape)),),
        (SpaceField("", "discrete", "<i8", (), n=(NUM_ACTIONS,), start=(0,)),),
        None,
        "vector_entry_point",
        {},
    )


def small_policy(env: EnvDescription) -> Policy:
    """Return a policy that is one layer, for observations of four numbers."""
    graph = graph_record(linear_q(4, NUM_ACTIONS), env)
    weights = np.linspace(-1, 1, 4 * NUM_ACTIONS, dtype=np.float32)
    arrays = {
        "w": weights.reshape(4, NUM_ACTIONS),
        "b": np.zeros(NUM_ACTIONS, np.float32),
    }
    session, version = open_graph(graph, env), version_record(graph, 3, arrays)
    params = session.load(version, version.tensors)
    return Policy(session, version, version.tensors, params)
