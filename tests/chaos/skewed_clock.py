"""Wall clocks that are wrong: imported by workers through ROLLSTREAM_ENV_MODULES.

Worker 0 is an hour behind, worker 1 an hour ahead, worker 2 jumps between the two each
second, and the others are right. Monotonic clocks are what they are.
"""

from __future__ import annotations

import time

from tests.chaos.journal import role_index

HOUR_S = 3600.0

_time_ns, _monotonic = time.time_ns, time.monotonic


def skew_s(index: int) -> float:
    """Return what a worker's clock is wrong by, now."""
    strobe = HOUR_S if int(_monotonic()) % 2 else -HOUR_S
    return {0: -HOUR_S, 1: HOUR_S, 2: strobe}.get(index, 0.0)


def install() -> None:
    """Let this process see the wrong time."""
    index = role_index()
    time.time_ns = lambda: _time_ns() + int(skew_s(index) * 1e9)
    time.time = lambda: time.time_ns() / 1e9


install()
