"""Curves that leave points out against slow ones that look at each."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.monitoring.dashboard.curves import (
    EPISODES,
    RATE_GAP_S,
    RATE_S,
    SERIES,
    curves_of,
    mean_returns,
    rate,
    thin,
)
from infra.monitoring.dashboard.rows import TRACKS

steps_s = st.sampled_from([0.0, 0.2, 1.0, 1.0, 5.0, 14.0, 16.0, 61.0, 400.0])
figures = st.one_of(st.integers(-50, 50), st.floats(-1e6, 1e6)).map(float)
curve = st.lists(st.tuples(steps_s, figures), max_size=60).map(
    lambda rows: (
        np.cumsum([1e9, *(step for step, _ in rows)])[1:],
        np.array([value for _, value in rows], dtype=float),
    )
)


def slow_thin(times, values, first_s, width_s, buckets, hold_s):
    """The same, bucket by bucket and point by point."""
    found = [[] for _ in range(buckets)]
    for t, v in zip(times.tolist(), values.tolist(), strict=True):
        if t >= first_s:
            found[min(int((t - first_s) / width_s), buckets - 1)].append((t, v))
    axis, before = [], None
    for k, inside in enumerate(found):
        if inside:
            inner = [v for _, v in inside]
            low, high = inner.index(min(inner)), inner.index(max(inner))
            axis += [inner[min(low, high)], inner[max(low, high)]]
            before = inside[-1]
            continue
        after = next((each[0] for each in found[k:] if each), None)
        near = before and after and hold_s and after[0] - before[0] <= hold_s
        axis += [before[1] if near else None] * 2
    return axis


@given(curve, st.integers(2, 60), st.sampled_from([None, 1.0, 30.0, 900.0]))
def test_a_thinned_curve_is_what_each_bucket_holds(found, points, last_s):
    times, values = found
    axis, series = thin({"loss": (times, values)}, points, last_s)
    if not len(times):
        assert axis == [] and series == {"loss": []}
        return
    first_s, last = float(times[0]), float(times[-1])
    if last_s is not None:
        first_s = max(first_s, last - last_s)
    buckets = max(1, min(points // 2, math.ceil(last - first_s)))
    width_s = max((last - first_s) / buckets, 0.5)
    expected = slow_thin(times, values, first_s, width_s, buckets, 15.0)
    assert series["loss"] == expected
    assert len(axis) == 2 * buckets <= max(points, 2)
    assert axis == sorted(axis) and (buckets == 1 or len(set(axis)) == len(axis))


@given(curve, st.integers(2, 40))
def test_no_spike_is_left_out(found, points):
    times, values = found
    _, series = thin({"loss": (times, values)}, points)
    shown = [each for each in series["loss"] if each is not None]
    if len(values):
        assert min(shown) == values.min() and max(shown) == values.max()


@given(curve, curve)
def test_series_share_one_axis(one, other):
    axis, series = thin({"loss": one, "eval_return": other}, 40)
    assert len(axis) == len(series["loss"]) == len(series["eval_return"])


def test_what_is_rare_is_not_held():
    times, values = np.array([0.0, 10.0]), np.array([1.0, 2.0])
    _, series = thin({"loss": (times, values), "eval_return": (times, values)}, 20)
    assert series["loss"] == [1.0] * 18 + [2.0] * 2
    assert series["eval_return"] == [1.0] * 2 + [None] * 16 + [2.0] * 2


def test_a_pause_is_a_gap():
    times = np.array([0.0, 1.0, 20.0, 21.0])
    _, series = thin({"loss": (times, np.arange(4.0))}, 42)
    assert series["loss"][:4] == [0.0, 0.0, 1.0, 1.0]
    assert series["loss"][4:40] == [None] * 36


def slow_rate(times, counter):
    found = []
    for i in range(1, len(times)):
        j = i
        while j > 0:
            is_break = (
                counter[j] < counter[j - 1] or times[j] - times[j - 1] > RATE_GAP_S
            )
            far = j < i and times[i] - times[j - 1] > RATE_S
            if is_break or far:
                break
            j -= 1
        if times[i] > times[j]:
            found.append((times[i], (counter[i] - counter[j]) / (times[i] - times[j])))
    return found


@given(curve)
def test_rates_are_those_of_the_last_seconds(found):
    times, values = found
    counter = np.abs(values)
    at, rates = rate(times, counter)
    expected = slow_rate(times.tolist(), counter.tolist())
    assert at.tolist() == [t for t, _ in expected]
    assert rates == pytest.approx([each for _, each in expected])
    assert (rates >= 0).all()


def test_a_rate_over_a_resumption_and_over_an_outage():
    times = np.array([0.0, 1.0, 2.0, 3.0, 100.0, 101.0])
    counter = np.array([0.0, 10.0, 20.0, 5.0, 15.0, 45.0])
    at, rates = rate(times, counter)
    assert at.tolist() == [1.0, 2.0, 101.0]
    assert rates.tolist() == [10.0, 10.0, 30.0]


@given(st.lists(st.tuples(st.integers(1, 150), figures), max_size=40))
def test_mean_returns_go_back_over_enough_episodes(rows):
    episodes = np.array([float(n) for n, _ in rows])
    sums = np.array([n * mean for n, mean in rows])
    _, means = mean_returns(np.arange(len(rows), dtype=float), episodes, sums)
    for i in range(len(rows)):
        j = i
        while j > 0 and sum(n for n, _ in rows[j : i + 1]) < EPISODES:
            j -= 1
        count = sum(n for n, _ in rows[j : i + 1])
        total = sum(n * mean for n, mean in rows[j : i + 1])
        assert means[i] == pytest.approx(total / count, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("sum_", [1e18, -1e18, np.inf, -np.inf, np.nan, 1e15])
@pytest.mark.parametrize("where", [0, 300, 599])
def test_one_return_that_cannot_be_falsifies_no_other(sum_, where):
    times, episodes = np.arange(600.0), np.full(600, 2.0)
    sums = episodes * (0.1 + times % 7)
    expected_t, expected = mean_returns(times, episodes, sums)
    sums[where] = sum_
    at, means = mean_returns(times, episodes, sums)
    if sum_ == 1e15:
        # As large as it may be; it is in 50 means, and in no digit of the others.
        others = (times < where) | (times >= where + EPISODES // 2)
        assert (means[others] == expected[others]).all() and means[where] > 1e12
        return
    assert at.tolist() == np.delete(times, where).tolist()
    far = (at < where) | (at > where + EPISODES)
    assert means[far] == pytest.approx(expected[expected_t != where][far], rel=1e-12)
    assert means == pytest.approx(np.full(599, 3.1), abs=3.1)


@pytest.mark.parametrize("count", [0.0, -5.0, np.nan, np.inf])
def test_records_without_episodes_are_left_out(count):
    at, means = mean_returns(
        np.arange(3.0), np.array([1.0, count, 1.0]), np.array([4.0, 9.0, 6.0])
    )
    assert at.tolist() == [0.0, 2.0] and means.tolist() == [4.0, 5.0]


@given(curve, st.sampled_from([np.nan, np.inf, -np.inf]), st.integers(0, 60))
def test_what_is_no_number_is_not_drawn_and_stops_nothing(found, bad, at):
    times, values = found
    at = min(at, len(values))
    with_bad = np.insert(times, at, times[at - 1] if at else 1e9)
    strange = with_bad, np.insert(values, at, bad)
    assert thin({"loss": strange}, 40) == thin({"loss": found}, 40)


def test_all_series_are_there_also_when_nothing_is():
    empty = {
        track: {name: np.empty(0) for name in ("t", *names)}
        for track, names in TRACKS.items()
    }
    curves = curves_of(empty)
    assert tuple(curves) == SERIES
    assert thin(curves, 600) == ([], {name: [] for name in SERIES})


def test_a_day_of_points_is_drawn_with_a_few():
    t, rng = 1e9 + np.arange(86_400.0), np.random.default_rng(1)
    tables = {
        track: {"t": t, **{name: rng.random(len(t)) for name in names}}
        for track, names in TRACKS.items()
    }
    tables["learner"]["env_steps"] = np.arange(len(t)) * 100.0
    axis, series = thin(curves_of(tables), 600)
    assert len(axis) == 600 and set(map(len, series.values())) == {600}
    assert series["loss"][0] is not None
    assert max(series["loss"]) == tables["learner"]["loss"].max()
    assert series["env_steps_per_s"][-1] == pytest.approx(100.0)
