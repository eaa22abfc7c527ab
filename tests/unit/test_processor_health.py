"""The rules by which a processor ends itself: tables of cases, the times passed in."""

from __future__ import annotations

import pytest

from schemas.records import Position
from stream_processors.health import LogRange, Pulse, Stillness, stuck


@pytest.mark.parametrize(
    ("pulse", "expected", "reason"),
    [
        (Pulse(999.5, 999.5, None), "", "all is well"),
        (Pulse(999.5, 941.0, None), "", "late by 59 s"),
        (Pulse(999.5, 939.0, None), "event loop", "late by 61 s"),
        (Pulse(900.0, 900.0, 800.0), "", "the whole process was frozen"),
        (Pulse(999.5, 999.5, 881.0), "", "a send of 119 s"),
        (Pulse(999.5, 999.5, 879.0), "under way", "a send of 121 s"),
    ],
)
def test_what_counts_as_stuck(pulse: Pulse, expected: str, reason: str) -> None:
    found = stuck(pulse, 1000.0)
    assert (expected in found) and bool(found) is bool(expected), reason


def test_still_is_what_has_not_moved_since_it_was_seen_first() -> None:
    def at(*places: int) -> tuple[Position, ...]:
        return tuple(Position("t", i, each, 0, 0) for i, each in enumerate(places))

    stillness = Stillness()
    assert stillness.note(at(5, 7), 100.0) == 0.0
    assert stillness.note(at(5, 7), 130.0) == 30.0
    assert stillness.note(at(5, 8), 140.0) == 0.0, "one of them moved"
    assert stillness.note(at(), 150.0) == 0.0, "all were taken away"
    assert stillness.note(at(), 190.0) == 40.0


@pytest.mark.parametrize(
    ("committed", "start", "end", "expired", "is_another", "reason"),
    [
        (-1, 0, 10, 0, False, "a new group on a whole log"),
        (-1, 4, 10, 4, False, "a new group: nobody ever read the first four"),
        (4, 4, 10, 0, False, "trimmed up to what is acknowledged"),
        (4, 9, 10, 5, False, "4 to 8 are gone"),
        (10, 10, 10, 0, False, "all acknowledged, all deleted"),
        (11, 0, 10, 0, True, "acknowledged what this log never had"),
    ],
)
def test_what_the_log_still_holds(
    committed: int, start: int, end: int, expired: int, is_another: bool, reason: str
) -> None:
    found = LogRange(0, committed, start, end)
    assert (found.expired, found.is_another_log) == (expired, is_another), reason
