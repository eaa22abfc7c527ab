"""When faults happen."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.chaos.harness import Harness


def at_random_times(harness: Harness, times: int, within_s: float) -> Iterator[int]:
    """Yield so many times, at moments drawn at random; then wait for the end.

    On a slow machine all of it may take longer: what is done at each moment takes time.
    """
    began_s = time.monotonic()
    moments = sorted(harness.random.uniform(0, within_s) for _ in range(times))
    for number, at_s in enumerate(moments):
        _sleep_until(began_s + at_s)
        yield number
    _sleep_until(began_s + within_s)


def _sleep_until(at_s: float) -> None:
    # The load itself is what is waited for: there is no condition.
    time.sleep(max(0.0, at_s - time.monotonic()))
