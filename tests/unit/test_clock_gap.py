"""Two clocks, and records that are heard of as they come, or of the past."""

from __future__ import annotations

import random

import pytest

from infra.monitoring.lag.clock_gap import ClockGap

START_S = 1_700_000_000.0


class Telling:
    """Records that are appended each second; the host's clock is ``ahead_s`` ahead."""

    def __init__(self, ahead_s: float) -> None:
        self.gap = ClockGap()
        self.ahead_s = ahead_s
        self._waits = random.Random(7)

    def read_past(self, from_s: float, to_s: float) -> None:
        """All at once, by the broker's clock from the one to the other."""
        at_s = from_s
        while at_s <= to_s:
            self.gap.hear(START_S + at_s, START_S + to_s + self.ahead_s)
            at_s += 1.0

    def live(self, from_s: float, to_s: float, every_s: float = 1.0) -> None:
        """Each some hundredths of a second after it was appended."""
        at_s = from_s
        while at_s <= to_s:
            wait_s = self._waits.uniform(0.01, 0.3)
            self.gap.hear(START_S + at_s, START_S + at_s + wait_s + self.ahead_s)
            at_s += every_s


@pytest.mark.parametrize("ahead_s", [-60.0, -5.0, 0.0, 5.0, 20.0, 3_600.0])
def test_records_that_come_show_it(ahead_s: float) -> None:
    telling = Telling(ahead_s)
    telling.read_past(0, 500)
    assert telling.gap.ahead_s is None, "the past shows nothing"
    telling.live(501, 504)
    assert telling.gap.ahead_s == pytest.approx(ahead_s, abs=0.3)


def test_the_past_shows_nothing_also_where_it_takes_long_to_read() -> None:
    telling = Telling(20.0)
    for second in range(0, 3_600, 2):
        telling.gap.hear(START_S + second, START_S + 3_620 + second / 600)
        assert telling.gap.ahead_s is None
    telling.live(3_607, 3_610)
    assert telling.gap.ahead_s == pytest.approx(20.0, abs=0.3)


def test_who_told_something_long_ago_shows_nothing() -> None:
    telling = Telling(0.0)
    for _ in range(100):
        telling.gap.hear(START_S, START_S + 3_600)
    assert telling.gap.ahead_s is None
    assert telling.gap.newest_s == START_S


def test_who_comes_back_after_an_hour_is_not_taken_for_an_hour_behind() -> None:
    telling = Telling(20.0)
    telling.gap.hear(START_S, START_S + 3_600 + 20)
    telling.live(3_660, 3_663)
    assert telling.gap.ahead_s == pytest.approx(20.0, abs=0.3)


def test_the_past_of_another_topic_changes_nothing() -> None:
    telling = Telling(5.0)
    telling.live(100, 103)
    known = telling.gap.ahead_s
    telling.read_past(0, 50)
    assert telling.gap.ahead_s == known


@pytest.mark.parametrize("set_to_s", [-30.0, 30.0])
def test_a_clock_that_is_set_is_measured_anew(set_to_s: float) -> None:
    telling = Telling(0.0)
    telling.live(0, 30)
    telling.ahead_s = set_to_s
    telling.live(31, 55)
    assert telling.gap.ahead_s == pytest.approx(set_to_s, abs=0.3)


def test_records_that_are_held_up_on_the_way_are_no_gap() -> None:
    telling = Telling(0.0)
    telling.live(0, 10)
    for second in range(11, 16):  # they come together, after an outage
        telling.gap.hear(START_S + second, START_S + 16)
    telling.live(17, 19)
    assert telling.gap.ahead_s == pytest.approx(0.0, abs=0.3)
