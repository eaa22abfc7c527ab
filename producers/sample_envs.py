"""Environments of our own, for samples and tests: importing this registers them.

``rollstream/Recall-v0`` cannot be solved without a memory: a cue is shown at first, and
asked for after a delay full of distraction. Whoever forgets is right once in ``cues``.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from schemas.tensors import Array

RECALL = "rollstream/Recall-v0"


class VectorRecall(VectorEnv[Any, Any, Any]):
    """Recall: what was the cue? B at once.

    An episode has ``delay`` + 2 steps. The observation is one-hot: at first the cue,
    then in each step of the delay a random distractor, in numbers of its own, at last
    the question, after which the episode is over. The last action gives a reward of 1
    if it is the cue's number; all others give 0.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}

    def __init__(self, num_envs: int = 1, *, cues: int = 4, delay: int = 8) -> None:
        """Make B of them.

        Raises:
            ValueError: fewer than two cues, or a delay below 0.
        """
        if cues < 2 or delay < 0:
            raise ValueError(
                f"expected cues >= 2 and delay >= 0, found {cues} and {delay}"
            )
        self.num_envs, self._num_cues, self._delay = num_envs, cues, delay
        self.single_observation_space = spaces.Box(0, 1, (2 * cues + 1,), np.float32)
        self.single_action_space = spaces.Discrete(cues)
        batched = gymnasium.vector.utils.batch_space
        self.observation_space = batched(self.single_observation_space, num_envs)
        self.action_space = batched(self.single_action_space, num_envs)
        self._cues = np.zeros(num_envs, np.int64)
        self._steps = np.zeros(num_envs, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin new episodes everywhere."""
        super().reset(seed=seed)
        self._begin(np.ones(self.num_envs, np.bool_))
        return self._observe(), {}

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step all; who was done begins a new episode instead."""
        is_over = self._steps == self._delay + 2
        self._steps += 1
        terminated = self._steps == self._delay + 2
        rewards = (terminated & (np.asarray(actions) == self._cues)).astype(np.float64)
        self._begin(is_over)
        never = np.zeros(self.num_envs, np.bool_)
        return self._observe(), rewards, terminated, never, {}

    def _begin(self, where: Array) -> None:
        drawn = self.np_random.integers(0, self._num_cues, self.num_envs)
        self._cues = np.where(where, drawn, self._cues)
        self._steps[where] = 0

    def _observe(self) -> Array:
        asked, over = self._delay + 1, self._delay + 2
        distractors = self.np_random.integers(0, self._num_cues, self.num_envs)
        hot = self._num_cues + distractors
        hot = np.where(self._steps == 0, self._cues, hot)
        hot = np.where(self._steps == asked, 2 * self._num_cues, hot)
        seen = np.arange(2 * self._num_cues + 1) == hot[:, None]
        found: Array = (seen & (self._steps < over)[:, None]).astype(np.float32)
        return found


class Recall(gymnasium.Env[Any, Any]):
    """One of VectorRecall's, with the same arguments."""

    metadata = {"render_modes": []}

    def __init__(self, *, cues: int = 4, delay: int = 8) -> None:
        self._one = VectorRecall(1, cues=cues, delay=delay)
        self.observation_space = self._one.single_observation_space
        self.action_space = self._one.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin a new episode."""
        super().reset(seed=seed)
        observations, infos = self._one.reset(seed=seed)
        return observations[0], infos

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        observations, rewards, terminated, _, infos = self._one.step([action])
        return observations[0], float(rewards[0]), bool(terminated[0]), False, infos


gymnasium.register(
    RECALL,
    "producers.sample_envs:Recall",
    vector_entry_point="producers.sample_envs:VectorRecall",
)
