"""At what pace a past is replayed; pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from infra.errors import RollstreamError

_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(x|/s)?")


class BadRate(RollstreamError):
    """A rate that says nothing."""


@dataclass
class Pace:
    """Says how long to wait before the next record.

    Attributes:
        steps_per_s: at most so many; None: any number.
        speed: how many times faster than it was; None: as fast as it goes.
        is_paused: nothing is to be sent for now.
    """

    steps_per_s: float | None = None
    speed: float | None = None
    is_paused: bool = False
    _began_s: float = math.nan
    _first_ms: int = 0
    _steps: int = 0

    @classmethod
    def parse(cls, text: str) -> Pace:
        """Return the pace of ``max``, ``N`` or ``N/s`` (steps per second), or ``2x``.

        Raises:
            BadRate: it is none of these.
        """
        if text == "max":
            return cls()
        match = _RATE.fullmatch(text)
        if match is None or float(match[1]) <= 0:
            raise BadRate(
                f"rate: expected max, 20000/s (steps a second) or 2x (twice as fast as "
                f"it was), found {text[:40]!r}"
            )
        number = float(match[1])
        return cls(speed=number) if match[2] == "x" else cls(steps_per_s=number)

    def wait_s(self, produced_at_ms: int, now_s: float) -> float:
        """Return how many seconds to wait before a record of that time; 0: none."""
        if self.is_paused:
            return math.inf
        if math.isnan(self._began_s):
            self._began_s, self._first_ms = now_s, produced_at_ms
        if self.speed is not None:
            due_s = (produced_at_ms - self._first_ms) / 1000 / self.speed
        elif self.steps_per_s is not None:
            due_s = self._steps / self.steps_per_s
        else:
            return 0.0
        return max(0.0, self._began_s + due_s - now_s)

    def sent(self, steps: int) -> None:
        """Count steps that were sent."""
        self._steps += steps

    def put_off(self, seconds: float) -> None:
        """Do not make up for seconds in which nothing could be sent."""
        self._began_s += seconds
