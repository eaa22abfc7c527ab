"""Environments that follow a script: ends, crashes and odd rewards where it says."""

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from producers.guarded_env import Failure, Step
from producers.seeding import StreamSeeds
from producers.spaces import Fields, Structure
from schemas.tensors import Array


@dataclass(frozen=True)
class Script:
    """What happens, [T, B] each, in NEXT_STEP mode; observations [T + 1, B, N]."""

    observations: Array
    rewards: Array
    terminated: Array
    truncated: Array
    failed: Array
    valid: Array


def write_script(
    seed: int, steps: int, num_envs: int, width: int = 2, luck: float = 0.6
) -> Script:
    """Throw dice for each environment; what follows an end is a reset."""
    rng = np.random.default_rng(seed)
    rows = (steps, num_envs)
    observations = rng.normal(size=(steps + 1, num_envs, width)).astype(np.float32)
    rewards = rng.normal(size=rows)
    terminated, truncated, failed = (np.zeros(rows, np.bool_) for _ in range(3))
    valid = np.ones(rows, np.bool_)
    for env in range(num_envs):
        is_over = False
        for t in range(steps):
            happens = rng.choice(
                ["nothing", "end", "limit", "crash", "odd"],
                p=[luck, *[(1 - luck) / 4] * 4],
            )
            valid[t, env] = not is_over and happens not in ("crash", "odd")
            if happens == "crash":
                failed[t, env] = truncated[t, env] = is_over = True
                rewards[t, env] = 0
            elif is_over:
                rewards[t, env], is_over = 0, False
            elif happens == "odd":
                rewards[t, env] = np.nan
            else:
                terminated[t, env] = happens == "end"
                truncated[t, env] = happens == "limit"
                is_over = happens != "nothing"
    return Script(observations, rewards, terminated, truncated, failed, valid)


class ScriptedEnvironments:
    """Plays a script from its beginning; actions change nothing, and are kept."""

    vectorization = "sync"
    restarts = 0

    def __init__(self, script: Script, action: spaces.Space) -> None:
        self.script = script
        self.num_envs = script.rewards.shape[1]
        wide = script.observations.shape[2]
        box = spaces.Box(-np.inf, np.inf, (wide,), np.float32)
        self.observation, self.action = Structure.of(box), Structure.of(action)
        self.received: list[Array] = []

    def reset(self, seeds: StreamSeeds) -> Fields:
        return {"": self.script.observations[0]}

    def step(self, actions: Fields) -> Step:
        script, t = self.script, len(self.received)
        self.received.append(actions[""].copy())
        return Step(
            {"": script.observations[t + 1]},
            script.rewards[t],
            script.terminated[t],
            script.truncated[t],
            tuple(
                Failure(int(env), "boom") for env in np.flatnonzero(script.failed[t])
            ),
        )

    def close(self) -> None:
        pass
