"""When do bad records mean that something is wrong? One rule for all who read."""

from __future__ import annotations

from collections import deque

LAST = 100
JUDGED_FROM = 20
MAX_BAD = 5


class BadRecords:
    """Counts undecodable records among the last 100.

    A first few bad ones say nothing of a rate, and each is kept as a dead letter: so
    nothing is judged before 20 records were read.
    """

    def __init__(self) -> None:
        self._last: deque[bool] = deque(maxlen=LAST)

    def good(self) -> None:
        """Count a record that could be used."""
        self._last.append(False)

    def bad(self) -> bool:
        """Count a record that could not; return whether there are too many now."""
        self._last.append(True)
        return len(self._last) >= JUDGED_FROM and sum(self._last) > MAX_BAD

    def __str__(self) -> str:
        """Say how many of how many."""
        return f"{sum(self._last)} of the last {len(self._last)} records"
