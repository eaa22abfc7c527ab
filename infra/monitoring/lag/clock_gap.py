"""Times of append, and when they were heard of -> how far apart two clocks are; pure.

Ages are differences of the brokers' clock and of this host's: without this a host that
is ahead by ten seconds would take every role for silent.
"""

from __future__ import annotations

import math

# For whoever hears records as they come, as much time passes on both clocks from one to
# another; for whoever reads the past, hours of it go by at once.
_UNEVEN_S = 1.0
_LISTENED_S = 0.5
# Clocks are set while we run: what they were is forgotten after at most twice this.
_TURN_S = 10.0


class ClockGap:
    """Measures it by records that come while one listens: by the least of their waits.

    Attributes:
        newest_s: the latest time of the broker's clock that was heard of; minus
            infinity before the first.
        ahead_s: by how much this host's clock is ahead; negative: it is behind. None:
            not known, as while nobody tells anything.
    """

    def __init__(self) -> None:
        """Begin with nothing heard."""
        self.newest_s = -math.inf
        self.ahead_s: float | None = None
        self._began: tuple[float, float] | None = None
        self._turn_ends_s = -math.inf
        self._least_s = self._least_before_s = math.inf

    def hear(self, appended_s: float, heard_s: float) -> None:
        """Take in a record.

        Args:
            appended_s: when, by the broker's clock.
            heard_s: when it was heard of, by this host's.
        """
        if appended_s <= self.newest_s:
            return  # of the past, or heard of before
        self.newest_s = appended_s
        if self._began is None or self._is_past(appended_s, heard_s, *self._began):
            self._began = appended_s, heard_s
            self._turn_ends_s = -math.inf
        elif heard_s - self._began[1] >= _LISTENED_S:
            self._measure(heard_s - appended_s, heard_s)

    def _measure(self, waited_s: float, heard_s: float) -> None:
        if heard_s >= self._turn_ends_s:
            is_long_ago = heard_s >= self._turn_ends_s + _TURN_S
            self._least_before_s = math.inf if is_long_ago else self._least_s
            self._least_s = math.inf
            self._turn_ends_s = heard_s + _TURN_S
        self._least_s = min(self._least_s, waited_s)
        self.ahead_s = min(self._least_s, self._least_before_s)

    @staticmethod
    def _is_past(
        appended_s: float, heard_s: float, before_s: float, heard_before_s: float
    ) -> bool:
        return appended_s - before_s > heard_s - heard_before_s + _UNEVEN_S
