"""What the window of a place keeps, and what it remembers beyond that."""

from __future__ import annotations

import pytest

from infra.monitoring.lag.ends import Ends
from infra.monitoring.lag.measures import lag_of, missing, retention_used
from infra.monitoring.lag.window import SAMPLES, SPAN_S, Window
from tests.unit.lag_windows import START_S, look, steady


def test_every_sample_of_the_last_seconds_is_kept() -> None:
    looks = steady(9, reads=1)

    assert Window(*looks).samples == tuple(looks)


def test_older_samples_are_kept_coarser_and_not_beyond_the_span() -> None:
    samples = Window(*steady(600, reads=1, comes=1)).samples

    assert SPAN_S - 5 <= samples[-1].at_s - samples[0].at_s <= SPAN_S
    assert len(samples) < 45
    assert [each.at_s for each in samples] == sorted(each.at_s for each in samples)


def test_many_samples_a_second_are_bounded() -> None:
    assert len(Window(*steady(200, every_s=0.01)).samples) <= SAMPLES


def test_the_last_two_are_kept_where_looks_are_seldom() -> None:
    window = Window(look(0, 1, 9), look(100, 2, 9), look(200, 3, 9))

    assert [each.committed for each in window.samples] == [2, 3]


def test_what_is_not_newer_is_ignored() -> None:
    window = Window(look(5, 7, 9), look(5, 8, 9), look(4, 9, 9))

    assert [each.committed for each in window.samples] == [7]


def test_another_topic_of_the_name_begins_anew() -> None:
    window = Window(*steady(9, 50, topic_id="a"), look(10, 0, 3, topic_id="b"))

    assert len(window.samples) == 1
    assert window.went_back_s is None


def test_what_was_told_of_the_topic_before_is_forgotten() -> None:
    window = Window(look(0, 50, 90, position=80, topic_id="a"))
    window.add(look(1, None, 200, position=80, told_s=0, topic_id="b"))

    assert window.newest is not None and window.newest.standing is None


def test_where_a_role_stood_when_it_went_holds_however_long_ago_that_was() -> None:
    window = Window(look(61, 10, 100, position=90, told_s=0))
    assert window.newest is not None and window.newest.next == 90

    window.add(look(62, 95, 100, position=90, told_s=0))  # another has read on
    assert window.newest.next == 95


def test_marks_that_were_counted_once_count_until_something_is_read() -> None:
    window = Window(look(0, 11, 12, markers=1), look(1, 11, 14))
    assert window.newest is not None and lag_of(window.newest) == 2

    window.add(look(2, 13, 14))
    assert lag_of(window.newest) == 1


def test_the_time_of_the_first_record_holds_while_it_waits() -> None:
    window = Window(look(0, 5, 9, next_at_s=900.0), look(1, 5, 9), look(2, 6, 9))

    assert [each.next_at_s for each in window.samples] == [900.0, 900.0, None]


def test_waits_for_commits_count_from_when_there_was_something() -> None:
    window = Window(look(0, 9, 9), look(50, 9, 20), look(57, 20, 20))

    assert window.commit_wait_s == 7


def test_only_the_last_waits_for_commits_count() -> None:
    looks = [look(0, 0, 99), look(90, 1, 99)]
    looks += [look(90 + t, 1 + t, 99) for t in range(1, 9)]

    assert Window(*looks[:-1]).commit_wait_s == 90
    assert Window(*looks).commit_wait_s == 1


def test_an_outage_is_no_time_that_nothing_moved() -> None:
    window = Window(*steady(3, 5), look(303, 5, 100))

    assert window.still_since_s == START_S + 299


@pytest.mark.parametrize(
    ("committed", "end", "more", "lag"),
    [
        (None, 9, {}, None),
        (4, 9, {}, 5),
        (4, 9, {"markers": 2}, 3),
        (4, 9, {"markers": 9}, 0),
        (4, 9, {"position": 7}, 2),
        (8, 9, {"position": 7}, 1),
        (20, 9, {}, None),
        (4, 9, {"begin": 6}, 3),
        (4, 9, {"stable_end": 6}, 2),
    ],
)
def test_lag_is_counted_from_what_is_not_handled(
    committed: int | None, end: int, more: dict[str, int], lag: int | None
) -> None:
    assert lag_of(look(0, committed, end, **more)) == lag


@pytest.mark.parametrize(
    ("committed", "begin", "end", "blank_to", "count"),
    [
        (None, 5, 9, 0, 0),
        (5, 5, 9, 0, 0),
        (3, 5, 9, 0, 2),
        (4, 5, 9, 0, 1),
        (4, 5, 5, 0, 0),
        (3, 5, 9, 4, 1),
        (3, 5, 9, 7, 0),
    ],
)
def test_missing_is_what_expired_unread(
    committed: int | None, begin: int, end: int, blank_to: int, count: int
) -> None:
    assert missing(look(0, committed, end, begin=begin), blank_to) == count


@pytest.mark.parametrize(
    ("committed", "begin", "end", "used"),
    [
        (None, 0, 9, None),
        (75, 0, 100, 0.25),
        (100, 0, 100, 0.0),
        (10, 50, 100, 1.0),
        (0, 0, 0, 0.0),
    ],
)
def test_retention_used_is_the_share_that_lies_before_the_reader(
    committed: int | None, begin: int, end: int, used: float | None
) -> None:
    assert retention_used(look(0, committed, end, begin=begin)) == used


def test_offsets_are_dated_between_the_ends_around_them() -> None:
    ends = Ends()
    for at_s, end in [(0.0, 10), (10.0, 20), (20.0, 20), (30.0, 21)]:
        ends.add(end, at_s, None)

    assert ends.appended_at_s(10) == 0.5
    assert ends.appended_at_s(19) == 9.5
    assert ends.appended_at_s(20) == 25.0  # not before 20: the end stood there
    assert ends.appended_at_s(9) is None
    assert ends.appended_at_s(21) == 30.0  # not there yet


def test_a_record_that_was_read_dates_what_came_before_all_ends() -> None:
    ends = Ends()
    ends.add(100, 50.0, 0)
    ends.add_record(0, 0.0)

    assert ends.appended_at_s(50) == pytest.approx(25.25)


def test_a_records_time_that_is_known_better_counts() -> None:
    ends = Ends()
    ends.add(100, 50.0, 0)
    ends.add_record(0, -60.0)
    ends.add_record(0, 0.0)  # the clocks are 60 s apart
    assert ends.appended_at_s(50) == pytest.approx(25.25)
    ends.add_record(0, 70.0)
    assert ends.appended_at_s(50) == pytest.approx(50.0)


def test_a_sample_of_the_end_is_no_records_time() -> None:
    ends = Ends()
    ends.add(100, 50.0, None)
    ends.add(110, 60.0, None)
    ends.add_record(100, 10.0)

    assert ends.appended_at_s(100) == pytest.approx(50.5)


def test_a_time_that_cannot_be_is_not_believed() -> None:
    ends = Ends()
    ends.add(100, 50.0, 0)
    ends.add_record(0, 60.0)

    assert ends.appended_at_s(50) is None


def test_hours_of_ends_take_a_bounded_place_and_stay_true() -> None:
    ends = Ends()
    for second in range(20_000):
        ends.add(10 * second, float(second), 0)

    assert len(ends._points) <= 128
    for offset in (0, 5_000, 123_456, 199_000):
        assert ends.appended_at_s(offset) == pytest.approx(offset / 10, abs=1)


def test_ends_that_nobody_asks_for_are_forgotten() -> None:
    ends = Ends()
    for second in range(100):
        ends.add(10 * second, float(second), 10 * second - 5)

    assert len(ends._points) == 2


def test_a_log_that_was_cut_begins_anew() -> None:
    ends = Ends()
    for at_s, end in [(0.0, 10), (10.0, 20), (20.0, 5), (30.0, 15)]:
        ends.add(end, at_s, None)

    assert ends.appended_at_s(12) == 27.5
    assert ends.appended_at_s(3) is None


def test_the_record_that_was_read_dates_those_after_it() -> None:
    window = Window(look(0, 0, 100, next_at_s=900.0), look(1, 50, 101))

    assert window.appended_at_s(50) == pytest.approx(950.5)


def test_an_empty_window_has_no_span_and_nothing_missing() -> None:
    assert (Window().span_s, Window().missing, Window().samples) == (0.0, 0, ())
