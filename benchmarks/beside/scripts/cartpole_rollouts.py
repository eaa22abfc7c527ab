"""CartPole's vector entry point and a small policy -> unrolls, for peers' producers.

Runs in peers' environments: nothing but numpy and Gymnasium.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

HIDDEN = 64
EPSILON = 0.05


class Rollouts:
    """B environments, stepped T times for each unroll by an MLP of 64 units."""

    def __init__(self, num_envs: int, num_steps: int, seed: int = 0) -> None:
        self._env = gymnasium.make_vec(
            "CartPole-v1",
            num_envs=num_envs,
            vectorization_mode="vector_entry_point",
        )
        self._rng = np.random.default_rng(seed)
        self._num_envs, self._num_steps = num_envs, num_steps
        draw = self._rng.standard_normal
        self._into = (draw((4, HIDDEN)) / 2).astype(np.float32)
        self._out = (draw((HIDDEN, 2)) / 8).astype(np.float32)
        self._observed: Array = self._env.reset(seed=seed)[0]
        self._ended = np.zeros(num_envs, np.bool_)

    def collect(self) -> Arrays:
        """Return the next T vector steps.

        ``observations`` [T+1, B, 4] float32, ``actions`` [T, B] int64, ``rewards``
        [T, B] float32, ``terminated``, ``truncated`` and ``valid`` [T, B] bool: a row
        after an episode's end is a reset and no transition. ``q_max`` [T+1, B],
        ``q_taken`` and ``log_prob`` [T, B] float32, of who acted; ``ended_s`` [], when
        the last row was done.
        """
        unroll = {
            name: np.empty(shape, kind)
            for name, (shape, kind) in layout(self._num_steps, self._num_envs).items()
        }
        values = np.empty((self._num_steps + 1, self._num_envs, 2), np.float32)
        explores, explored = self._chance()
        for step in range(self._num_steps):
            unroll["observations"][step] = self._observed
            self._evaluate(self._observed, values[step])
            # Over two numbers in a row a comparison is much faster than argmax().
            actions = (values[step, :, 1] > values[step, :, 0]).astype(np.int64)
            np.copyto(actions, explored[step], where=explores[step])
            found, rewards, terminated, truncated, _ = self._env.step(actions)
            unroll["valid"][step] = ~self._ended
            unroll["actions"][step] = actions
            unroll["rewards"][step] = rewards
            unroll["terminated"][step] = terminated
            unroll["truncated"][step] = truncated
            self._observed, self._ended = found, terminated | truncated
        unroll["observations"][-1] = self._observed
        self._evaluate(self._observed, values[-1])
        _note_behaviour(unroll, values)
        unroll["ended_s"] = np.array(time.time())
        return unroll

    def _evaluate(self, observations: Array, into: Array) -> None:
        np.matmul(np.tanh(observations @ self._into), self._out, out=into)

    def _chance(self) -> tuple[Array, Array]:
        shape = (self._num_steps, self._num_envs)
        return self._rng.random(shape) < EPSILON, self._rng.integers(0, 2, shape)


def _note_behaviour(unroll: Arrays, values: Array) -> None:
    first, second = values[..., 0], values[..., 1]
    np.maximum(first, second, out=unroll["q_max"])
    took_second = unroll["actions"] == 1
    unroll["q_taken"][:] = np.where(took_second, second[:-1], first[:-1])
    is_greedy = took_second == (second[:-1] > first[:-1])
    greedy, other = np.log(1 - EPSILON / 2), np.log(EPSILON / 2)
    unroll["log_prob"][:] = np.where(is_greedy, greedy, other)


def layout(num_steps: int, num_envs: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return the shape and the kind of each array of an unroll, but for its time."""
    rows = (num_steps, num_envs)
    return {
        "observations": ((num_steps + 1, num_envs, 4), np.float32),
        "actions": (rows, np.int64),
        "rewards": (rows, np.float32),
        "terminated": (rows, np.bool_),
        "truncated": (rows, np.bool_),
        "valid": (rows, np.bool_),
        "q_max": ((num_steps + 1, num_envs), np.float32),
        "q_taken": (rows, np.float32),
        "log_prob": (rows, np.float32),
    }


class Pace:
    """Holds a rate of env steps a second; 0: as fast as it goes."""

    def __init__(self, rate: float, steps_per_unroll: int) -> None:
        self._period_s = steps_per_unroll / rate if rate else 0.0
        self._next_s = time.monotonic()

    def wait(self) -> None:
        """Sleep until the next unroll may begin."""
        if not self._period_s:
            return
        now_s = time.monotonic()
        # Who is far behind does not make up for it in a burst.
        self._next_s = max(self._next_s + self._period_s, now_s - self._period_s)
        time.sleep(max(0.0, self._next_s - now_s))
