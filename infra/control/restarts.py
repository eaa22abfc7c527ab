"""When may a process that failed be started again? Pure rules on times."""

from __future__ import annotations

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
    """

    count: int = 0
    total: int = 0
    retry_at_s: float = 0.0
    gave_up: bool = False


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
    delay_s = 0.0
    if count > 1:
        delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (count - 2))
    return Failures(
        count,
        failures.total + 1,
        now_s + delay_s * (1 + jitter / 2),
        gave_up=count >= max_failures,
    )
