"""Steps taken -> when the next unroll may begin, so that a rate is kept; pure."""

from __future__ import annotations

# What was not used is not made up for: a burst after a pause would not be the rate.
_MAX_BEHIND_S = 0.25


class Pace:
    """Keeps steps per second at or below a limit; 0: no limit."""

    def __init__(self, steps_per_s: float) -> None:
        self._steps_per_s = steps_per_s
        self._next_at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Return how long to wait before the next unroll; 0: begin."""
        return max(0.0, self._next_at_s - now_s)

    def took(self, steps: int, now_s: float) -> None:
        """Note the steps of an unroll that begins now."""
        if self._steps_per_s > 0:
            start_s = max(self._next_at_s, now_s - _MAX_BEHIND_S)
            self._next_at_s = start_s + steps / self._steps_per_s
