"""Streams whose observations say where they are from, and the rows made of them.

An observation is (worker, env, step, episode), so that a test can read off any sample
which observation it is. Rewards and returns are worked out by a slow loop.
"""

from dataclasses import dataclass

import numpy as np

from schemas.experiment import ReplaySpec
from schemas.records import (
    NO_POLICY,
    EnvDescription,
    SourceRef,
    SpaceField,
    TransitionBatch,
)
from schemas.tensors import pack

GAMMA = 0.9
ENV = EnvDescription(
    "E3",
    (SpaceField("", "box", "<f4", (4,)),),
    (SpaceField("", "discrete", "<i8", (), n=(1000,), start=(0,)),),
    None,
    "sync",
    {},
)


def replay(capacity, **changes):
    return ReplaySpec(**{"capacity": capacity, "min_size": 1} | changes)


@dataclass
class Stream:
    """One incarnation of a worker, NEXT_STEP autoreset: [steps + 1, envs, 4].

    Episode ends alternate between truncation and termination; ``lengths`` are those
    of the episodes of env 0, then rotated for each further env.
    """

    worker: str
    steps: int
    envs: int = 1
    lengths: tuple[int, ...] = (3,)
    n: int = 3
    incarnation: int = 1

    def __post_init__(self):
        shape = (self.steps, self.envs)
        self.observations = np.zeros((self.steps + 1, self.envs, 4), np.float32)
        self.valid = np.ones(shape, bool)
        self.terminated, self.truncated = np.zeros(shape, bool), np.zeros(shape, bool)
        for env in range(self.envs):
            self._play(env)

    def _play(self, env):
        episode, age, over = 0, 0, False
        for step in range(self.steps + 1):
            self.observations[step, env] = int(self.worker[1:]), env, step, episode
            if step == self.steps:
                return
            if over:  # the reset row
                self.valid[step, env], over = False, False
                episode, age = episode + 1, 0
                continue
            age += 1
            over = age == self.lengths[(episode + env) % len(self.lengths)]
            if over:
                kind = self.truncated if episode % 2 == 0 else self.terminated
                kind[step, env] = True

    def reward(self, step, env):
        return float(1 + step % 7 + env)

    def target(self, step, env):
        """(return, discount, bootstrap steps) of a valid row."""
        total, discount, m = 0.0, 1.0, 0
        while m < self.n and step + m < self.steps and self.valid[step + m, env]:
            total += discount * self.reward(step + m, env)
            discount *= GAMMA
            m += 1
            if self.terminated[step + m - 1, env]:
                return total, 0.0, m
            if self.truncated[step + m - 1, env]:
                break
        return total, discount, m

    def batch(self, first, last, **changes):
        """The batch of rows first to last - 1."""
        rows = [(s, e) for s in range(first, last) for e in range(self.envs)]
        shape = (last - first, self.envs)
        targets = [self.target(*r) if self.valid[r] else (0.0, 0.0, 0) for r in rows]
        returns, discounts, ahead = zip(*targets, strict=True)
        actions = [s % 1000 for s, _ in rows]
        rewards = [self.reward(*row) for row in rows]
        values = {
            "experiment": "e",
            "run_id": "run",
            "worker": self.worker,
            "incarnation": self.incarnation,
            "sequence": first,
            "first_step": first,
            "num_steps": last - first,
            "num_envs": self.envs,
            "policy": NO_POLICY,
            "produced_at_ms": 0,
            "end_of_stream": False,
            "source": SourceRef("t", 0, first),
            "n_step": self.n,
            "gamma": GAMMA,
            "reward_scale": 1.0,
            "observations": {"": pack(self.observations[first : last + 1])},
            "actions": {"": pack(np.array(actions, "<i8").reshape(shape))},
            "rewards": pack(np.array(rewards, "<f4").reshape(shape)),
            "terminated": pack(self.terminated[first:last]),
            "truncated": pack(self.truncated[first:last]),
            "valid": pack(self.valid[first:last]),
            "episodes": pack(self.observations[first, :, 3].astype("<i8")),
            "states": {},
            "behaviour": {},
            "infos": {},
            "returns": pack(np.array(returns, "<f4").reshape(shape)),
            "discounts": pack(np.array(discounts, "<f4").reshape(shape)),
            "bootstrap_steps": pack(np.array(ahead, "<i4").reshape(shape)),
            "priorities": pack(np.ones(shape, "<f4")),
        }
        return TransitionBatch(**values | changes)

    def batches(self, length):
        return [
            self.batch(at, min(at + length, self.steps))
            for at in range(0, self.steps, length)
        ]
