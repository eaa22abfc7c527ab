"""CartPole-shaped rows into a buffer, then drawn and weighed anew: the same for all.

Runs in peers' environments: nothing but numpy.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ALPHA, BETA = 0.6, 0.4
WARM_UP = 50
CHUNK = 8_192
"""Rows that come at once: a worker's 32 steps of 256 environments."""


def chunks(rows: int) -> Iterator[dict[str, Array]]:
    """Yield so many rows by name, [CHUNK, ...] or fewer each: ready to be kept."""
    rng = np.random.default_rng(0)
    for first in range(0, rows, CHUNK):
        count = min(CHUNK, rows - first)
        yield {
            "observation": rng.random((count, 4), np.float32),
            "action": rng.integers(0, 2, count),
            "return": np.zeros(count, np.float32),
            "discount": np.full(count, 0.97, np.float32),
            "bootstrap_observation": rng.random((count, 4), np.float32),
            "priority": rng.random(count, np.float32) + np.float32(0.01),
        }


def new_priorities(count: int) -> Array:
    """Return what the rows drawn are given, [count] float32."""
    return np.random.default_rng(1).random(count).astype(np.float32) + np.float32(0.01)


def measure(
    rows: int, batch: int, seconds: float,
    insert: Callable[[Mapping[str, Array]], object], cycle: Callable[[], object],
) -> dict[str, float]:  # fmt: skip
    """Fill, then draw and update for so long; return the figures."""
    insert_s = 0.0
    for number, chunk in enumerate(chunks(rows)):
        began_s = time.perf_counter()
        insert(chunk)
        insert_s += time.perf_counter() - began_s
        if number % 16 == 0:
            print(f"{number * CHUNK:,} rows", file=sys.stderr, flush=True)
    return {
        "items_per_s": batch * rate(cycle, seconds),
        "inserted_per_s": rows / insert_s,
        "rows": rows,
    }


def rate(cycle: Callable[[], object], seconds: float) -> float:
    """Return how often a second something is done, once it is warm."""
    for _ in range(WARM_UP):
        cycle()
    count, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        cycle()
        count += 1
    return count / (time.perf_counter() - began_s)
