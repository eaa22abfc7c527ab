"""The wall clock, for records; it orders nothing."""

import time


def now_ms() -> int:
    """Return milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000
