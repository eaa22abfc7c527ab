"""Judgements on a processor's health: pure rules, the times passed in."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.records import Position

STUCK_DELIVERY_S = 120.0
STUCK_LOOP_S = 60.0
FROZEN_S = 5.0
# Longer than a processor waits for the schema of a record.
STILL_S = 90.0
UNOWNED_S = 30.0


@dataclass(frozen=True, slots=True)
class Pulse:
    """When things last happened, in seconds of the monotonic clock.

    Attributes:
        looked: when the watchdog looked last.
        ticked: when the event loop ticked last.
        waiting_since: since when the oldest send or commit is under way.
    """

    looked: float
    ticked: float
    waiting_since: float | None


def stuck(pulse: Pulse, now: float) -> str:
    """Return what hangs, or "" when nothing does.

    1. The watchdog itself is late: the whole process was frozen, which says nothing.
    2. The event loop did not tick for a minute.
    3. A send or commit is under way for two minutes; whether the broker is to blame
       is for the caller to find out.
    """
    if now - pulse.looked > FROZEN_S:
        return ""
    if now - pulse.ticked > STUCK_LOOP_S:
        return f"the event loop did not run for {now - pulse.ticked:.0f} s"
    if pulse.waiting_since is not None:
        waited = now - pulse.waiting_since
        if waited > STUCK_DELIVERY_S:
            return f"a send or commit is under way for {waited:.0f} s"
    return ""


class Stillness:
    """For how long the positions of a processor have not changed."""

    def __init__(self) -> None:
        self._places: list[tuple[int, int]] = []
        self._since: float | None = None

    def note(self, positions: tuple[Position, ...], now: float) -> float:
        """Return for how many seconds they have been these ones."""
        places = [(each.partition, each.position) for each in positions]
        if self._since is None or places != self._places:
            self._places, self._since = places, now
        return now - self._since


@dataclass(frozen=True, slots=True)
class LogRange:
    """A partition as the broker and the group see it; ``committed`` -1: nothing is."""

    partition: int
    committed: int
    start: int
    end: int

    @property
    def expired(self) -> int:
        """Records that were deleted before anybody had acknowledged them."""
        return max(0, self.start - max(0, self.committed))

    @property
    def is_another_log(self) -> bool:
        """Whether the committed offset is of another topic, since deleted."""
        return self.committed > self.end
