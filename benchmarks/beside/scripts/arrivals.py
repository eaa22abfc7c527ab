"""Unrolls that arrive at a learner -> n-step returns, priorities; how many, how late.

Runs in peers' environments: nothing but numpy.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

START_S = 120.0
"""Nothing comes: all that is needed has started long before."""


def n_step(
    unroll: Mapping[str, Array], n: int, gamma: float = 0.99
) -> tuple[Array, Array, Array]:
    """Return n-step returns, discounts, and steps to the bootstrap, each [T, B].

    A horizon ends with an episode, or with the unroll. After a termination the
    discount is 0; where the row itself is a reset nothing is returned.
    """
    rewards, valid = unroll["rewards"], unroll["valid"]
    terminated = unroll["terminated"]
    goes_on = valid & ~(terminated | unroll["truncated"])
    returns = np.where(valid, rewards, np.float32(0))
    discounts = np.where(valid & ~terminated, np.float32(gamma), np.float32(0))
    taken = valid.astype(np.int32)
    # Whether the row that is i steps later belongs to the horizon of each row.
    live = goes_on.copy()
    for step in range(1, min(n, len(rewards))):
        live[-step:] = False
        later = live[:-step]
        returns[:-step] += later * np.float32(gamma**step) * rewards[step:]
        taken[:-step] += later
        reaches = np.where(terminated[step:], 0, gamma ** (step + 1))
        np.copyto(discounts[:-step], reaches, where=later, casting="same_kind")
        live[:-step] &= goes_on[step:]
    return returns, discounts, taken


def priorities(unroll: Mapping[str, Array], n: int) -> Array:
    """Return the absolute n-step TD errors of who acted, [T, B] float32."""
    returns, discounts, taken = n_step(unroll, n)
    num_envs = returns.shape[1]
    own = np.arange(returns.size).reshape(returns.shape)
    behind = unroll["q_max"].reshape(-1).take(own + taken * num_envs)
    found: Array = np.abs(returns + discounts * behind - unroll["q_taken"])
    return found


@dataclass
class Arrivals:
    """Counts what arrives within ``seconds`` after a warm-up that the first one begins.

    Attributes:
        warm_up_s: not counted.
        seconds: counted.
        steps: valid rows.
        size_bytes: of what brought them; 0: cannot be told.
        latencies_ms: of each arrival, from the end of its unroll.
    """

    warm_up_s: float
    seconds: float
    steps: int = 0
    size_bytes: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    _began_s: float = 0.0
    _made_s: float = field(default_factory=lambda: time.monotonic())

    @property
    def are_over(self) -> bool:
        """Whether the time is over.

        Raises:
            TimeoutError: nothing has come at all for two minutes.
        """
        if not self._began_s and time.monotonic() - self._made_s > START_S:
            raise TimeoutError(f"expected experience in {START_S:.0f} s, found none")
        ends_s = self._began_s + self.warm_up_s + self.seconds
        return bool(self._began_s) and time.monotonic() > ends_s

    def add(self, steps: int, ended_s: float, size_bytes: int = 0) -> None:
        """Take in what is ready now: its valid rows, and when it was acted."""
        now_s = time.monotonic()
        self._began_s = self._began_s or now_s
        if 0 < now_s - self._began_s - self.warm_up_s <= self.seconds:
            self.steps += steps
            self.size_bytes += size_bytes
            self.latencies_ms.append((time.time() - ended_s) * 1000)

    def take(self, unroll: Mapping[str, Array], n: int, size_bytes: int = 0) -> None:
        """Make an unroll what a learner needs, and count it."""
        priorities(unroll, n)
        steps = int(np.count_nonzero(unroll["valid"]))
        self.add(steps, float(unroll["ended_s"]), size_bytes)

    def figures(self) -> dict[str, float]:
        """Return the figures of the section.

        Raises:
            ValueError: nothing came in the time that counts.
        """
        if not self.latencies_ms:
            raise ValueError(f"expected experience in {self.seconds} s, found none")
        p50, p95, p99 = np.percentile(self.latencies_ms, [50, 95, 99])
        found = {
            "steps_per_s": self.steps / self.seconds,
            "p50_ms": float(p50),
            "p95_ms": float(p95),
            "p99_ms": float(p99),
        }
        if self.size_bytes and self.steps:
            found["bytes_per_step"] = self.size_bytes / self.steps
        return found
