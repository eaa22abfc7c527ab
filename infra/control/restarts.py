"""When may a process that failed be started again? Pure rules on times."""

from __future__ import annotations

import math
from dataclasses import dataclass

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
HEALTHY_AFTER_S = 60.0
MAX_FAILURES = 6


@dataclass(frozen=True, slots=True)
class Failures:
    """How often a process failed in a row.

    Attributes:
        count: failures in a row; one after a healthy minute starts again at 1.
        total: all there were.
        retry_at_s: monotonic time of the next start.
        gave_up: no further start is worth it.
        unstarted: how often in a row there was no process at all; not in ``count``.
    """

    count: int = 0
    total: int = 0
    retry_at_s: float = 0.0
    gave_up: bool = False
    unstarted: int = 0


def after_failure(
    failures: Failures,
    started_at_s: float,
    now_s: float,
    jitter: float,
    max_failures: int = MAX_FAILURES,
) -> Failures:
    """Return the failures after one more.

    The first is restarted at once, for a kill is seldom the process's own fault; then
    the delay doubles from FIRST_DELAY_S to LONGEST_DELAY_S.

    Args:
        failures: those before.
        started_at_s: when the process that failed was started.
        now_s: monotonic seconds.
        jitter: 0 to 1, spreads the restarts of many.
        max_failures: so many in a row, and it is given up.
    """
    count = 1 if now_s - started_at_s >= HEALTHY_AFTER_S else failures.count + 1
    return Failures(
        count,
        failures.total + 1,
        now_s + _delay_s(count, jitter),
        gave_up=count >= max_failures,
    )


def after_no_start(
    failures: Failures, now_s: float, jitter: float, max_failures: int | None = None
) -> Failures:
    """Return the failures after a start that came to nothing; delays are as ever.

    Args:
        failures: those before.
        now_s: monotonic seconds.
        jitter: 0 to 1, spreads the restarts of many.
        max_failures: so many in a row, and it is given up; None: never, for it is its
            host that fails.
    """
    unstarted = failures.unstarted + 1
    return Failures(
        failures.count,
        failures.total + 1,
        now_s + _delay_s(unstarted, jitter),
        gave_up=max_failures is not None and unstarted >= max_failures,
        unstarted=unstarted,
    )


def after_refusal(failures: Failures) -> Failures:
    """Return the failures after one that another start cannot mend: it is given up."""
    return Failures(failures.count + 1, failures.total + 1, math.inf, gave_up=True)


def _delay_s(in_a_row: int, jitter: float) -> float:
    if in_a_row <= 1:
        return 0.0
    # Nothing that is tried for hours may overflow.
    doubled_s = FIRST_DELAY_S * 2.0 ** min(in_a_row - 2, 16)
    return min(LONGEST_DELAY_S, doubled_s) * (1 + jitter / 2)
