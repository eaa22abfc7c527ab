"""Figures of a partition, worked out by hand."""

from __future__ import annotations

import pytest

from infra.monitoring.lag.figures import assess, rate
from infra.monitoring.lag.model import PartitionLag, Place, Sample
from infra.monitoring.lag.window import Window
from tests.unit.lag_windows import look, steady

PLACE = Place("rollstream.exp.processor", "exp.trajectories", 3)


def figures(*looks: Sample, rows_per_record: float | None = None) -> PartitionLag:
    return assess(PLACE, Window(*looks), rows_per_record=rows_per_record)


def test_one_look_at_all_that_can_be_seen() -> None:
    found = figures(
        look(
            30,
            40,
            110,
            begin=10,
            stable_end=100,
            position=70,
            held=25,
            markers=2,
            next_at_s=1_018.0,
            owner="p0@host",
        ),
        rows_per_record=16,
    )

    assert (found.place, found.owner) == (PLACE, "p0@host")
    assert (found.current, found.committed) == (70, 40)
    assert (found.begin, found.end, found.open_records) == (10, 100, 10)
    assert (found.held, found.unsaved) == (25, 30)
    assert (found.lag, found.raw_lag, found.lag_env_steps) == (28, 60, 448)
    assert (found.lag_s, found.lag_s_method) == (12.0, "record")
    assert found.retention_used == pytest.approx(30 / 90)
    assert found.produced_per_s is found.consumed_per_s is found.catch_up_s is None
    assert found.verdict.state == "OK"


def test_without_a_commit_nothing_is_claimed() -> None:
    found = figures(look(0, None, 9))

    assert found.lag is found.raw_lag is found.lag_s is found.unsaved is None
    assert found.retention_used is found.lag_env_steps is None
    assert found.verdict.state == "NO_COMMIT"


def test_all_that_was_read_without_a_commit_is_unsaved() -> None:
    assert figures(look(0, None, 9, begin=2, position=7)).unsaved == 5


def test_a_topic_made_anew_shows_in_the_raw_lag_only() -> None:
    found = figures(look(0, 900, 5))

    assert (found.lag, found.lag_env_steps, found.raw_lag) == (None, None, -895)


def test_rates_and_the_time_to_catch_up() -> None:
    found = figures(*steady(60, 0, 300, reads=8, comes=3))

    # After 60 s it has read 480 of 300 + 180: of these all.
    assert found.produced_per_s == pytest.approx(3)
    assert found.consumed_per_s == pytest.approx(8)
    assert (found.lag, found.catch_up_s) == (0, 0.0)

    found = figures(*steady(20, 0, 300, reads=8, comes=3))
    assert (found.lag, found.catch_up_s) == (200, pytest.approx(40))


def test_who_is_not_faster_never_catches_up() -> None:
    assert figures(*steady(20, 0, 300, reads=3, comes=3)).catch_up_s is None


def test_what_tells_each_second_is_measured_over_the_last_seconds() -> None:
    going = steady(60, 0, 900, position=0, reads=10, comes=10)
    stopped = steady(31, 0, 1_510, position=600, comes=10, from_s=61)

    assert figures(*going, *stopped).consumed_per_s == 0


def test_rare_commits_are_measured_over_the_whole_window() -> None:
    looks = [look(t, 100 * (t // 50), 10 * t + 100) for t in range(101)]

    assert figures(*looks).consumed_per_s == pytest.approx(2)


def test_going_back_is_no_work() -> None:
    assert rate([(0.0, 50), (1.0, 60), (2.0, 10), (4.0, 40)]) == 10
    found = figures(look(0, 50, 90), look(1, 60, 90), look(2, 10, 90), look(4, 40, 90))
    assert found.consumed_per_s == 10


@pytest.mark.parametrize("offsets", [[], [(0.0, 5)], [(0.0, None), (1.0, 5)]])
def test_a_rate_needs_two(offsets: list[tuple[float, int | None]]) -> None:
    assert rate(offsets) is None


def test_seconds_are_interpolated_where_no_record_was_read() -> None:
    # 50 behind a log that grows by 10 a second; 0.05 s: the middle of its second.
    found = figures(*steady(60, 50, 100, reads=10, comes=10))

    assert (found.lag_s, found.lag_s_method) == (pytest.approx(4.95), "interpolated")


def test_seconds_are_known_far_beyond_the_window() -> None:
    looks = [look(t, min(t, 10), t + 1) for t in range(2_000)]

    assert figures(*looks).lag_s == pytest.approx(1_989.5, abs=60)


def test_seconds_are_not_guessed_before_the_first_look() -> None:
    found = figures(look(0, 5, 9), look(1, 5, 9))

    assert (found.lag_s, found.lag_s_method) == (None, "")


def test_no_lag_is_no_seconds() -> None:
    found = figures(look(0, 9, 9))

    assert (found.lag_s, found.lag_s_method) == (0.0, "")


def test_clocks_that_differ_make_no_negative_age() -> None:
    assert figures(look(0, 5, 9, next_at_s=1_007.0)).lag_s == 0


def test_a_window_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="no sample"):
        figures()
