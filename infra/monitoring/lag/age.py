"""A window -> for how long its first record that waits has been there; pure."""

from __future__ import annotations

from infra.monitoring.lag.measures import lag_of
from infra.monitoring.lag.window import Window

RECORD, INTERPOLATED, NOT_KNOWN = "record", "interpolated", ""


def lag_age(window: Window) -> tuple[float | None, str]:
    """Return the lag in seconds, and how it was found; 0 without lag.

    By the time that the broker gave the record, where that was read; else by when the
    log's end came past its offset.
    """
    newest = window.newest
    lag = lag_of(newest) if newest else None
    if newest is None or newest.next is None or not lag:
        return (0.0 if lag == 0 else None), NOT_KNOWN
    if newest.next_appended_at_s is not None:
        return max(0.0, newest.at_s - newest.next_appended_at_s), RECORD
    first = max(newest.next, newest.begin)
    appended_at_s = window.appended_at_s(first)
    if appended_at_s is None:
        return None, NOT_KNOWN
    return max(0.0, newest.at_s - appended_at_s), INTERPOLATED
