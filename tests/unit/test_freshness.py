"""Policy lag, age of data and whose rows: worked out by hand, and by a slow count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.freshness import MOST_WORKERS, Freshness, Spread
from learner.origins import Acted

NAN = float("nan")


def acted(*rows):
    """(count, version, at_s, worker) of each chunk."""
    counts, versions, at_s, workers = zip(*rows, strict=True)
    return Acted(
        np.array(counts, np.int64),
        np.array(versions, np.float64),
        np.array(at_s, np.float64),
        np.array(workers, np.int64),
    )


def test_lag_and_age_count_each_row():
    freshness = Freshness()
    # 60 rows 2 versions and 4 s behind, 30 rows 5 and 10, 10 rows at random, 25 s old.
    freshness.add(
        acted((60, 8, 96, 0), (30, 5, 90, 1), (10, NAN, 75, 0)), ["w0", "w1"], 10, 100.0
    )
    assert freshness.take() == {
        "policy_lag_versions_mean": pytest.approx((60 * 2 + 30 * 5) / 90),
        "policy_lag_versions_p95": 5.0,
        "policy_lag_versions_max": 5.0,
        "policy_lag_s_mean": pytest.approx((60 * 4 + 30 * 10) / 90),
        "policy_lag_s_p95": 10.0,
        "policy_lag_s_max": 10.0,
        "data_age_s_p50": 4.0,
        "data_age_s_p95": 25.0,
    }


def test_the_lag_is_that_when_the_rows_were_learnt_from():
    freshness = Freshness()
    freshness.add(acted((10, 8, 96, 0)), ["w0"], 10, 100.0)
    freshness.add(acted((10, 8, 96, 0)), ["w0"], 14, 108.0)
    values = freshness.take()
    assert values["policy_lag_versions_mean"] == 4.0  # 2 and 6
    assert values["policy_lag_versions_max"] == 6.0
    assert (values["data_age_s_p50"], values["data_age_s_p95"]) == (4.0, 12.0)


def test_a_report_begins_anew_and_says_nothing_of_nothing():
    freshness = Freshness()
    assert freshness.take() == {} == freshness.rows()
    freshness.add(acted((10, 0, 0, 0)), ["w0"], 100, 1000.0)
    freshness.take()
    assert freshness.take() == {}
    freshness.add(acted((1, 9, 999, 0)), ["w0"], 10, 1000.0)
    assert freshness.take()["policy_lag_versions_max"] == 1.0


def test_before_the_first_policy_there_is_an_age_and_no_lag():
    freshness = Freshness()
    freshness.add(acted((3, NAN, 99, 0)), ["w0"], -1, 100.0)
    assert freshness.take() == {"data_age_s_p50": 1.0, "data_age_s_p95": 1.0}


def test_clocks_that_differ_make_no_lag_below_0():
    freshness = Freshness()
    # Acted after it was learnt from, with a version that is not published yet.
    freshness.add(acted((3, 12, 103, 0)), ["w0"], 10, 100.0)
    assert set(freshness.take().values()) == {0.0}


def test_numbers_that_nobody_means_do_no_harm():
    freshness = Freshness()
    freshness.add(acted((1, 2.0**63, -(2.0**53), 0)), ["w0"], 10, 100.0)
    assert all(np.isfinite(list(freshness.take().values())))


def test_rows_are_counted_by_worker_since_the_start():
    freshness = Freshness()
    freshness.add(acted((10, 1, 0, 0), (5, 2, 0, 0)), ["w0"], 3, 1.0)
    freshness.take()
    freshness.add(acted((7, 1, 0, 1), (1, 2, 0, 0)), ["w0", "w7"], 3, 1.0)
    assert freshness.rows() == {"trained_rows/w0": 16, "trained_rows/w7": 7}


def test_of_too_many_workers_those_with_most_rows_are_told():
    freshness, workers = Freshness(), [f"w{index}" for index in range(200)]
    rows = [(index + 1, 0, 0, index) for index in range(200)]
    freshness.add(acted(*rows), workers, 0, 0.0)
    expected = {f"trained_rows/w{index}": index + 1 for index in range(136, 200)}
    assert freshness.rows() == expected
    assert len(expected) == MOST_WORKERS


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=40)
)
def test_a_spread_is_that_of_all_values_written_out(pairs):
    values, counts = map(np.array, zip(*sorted(pairs), strict=True))
    found = Spread.of(values.astype(np.float64), counts)
    written_out = np.repeat(values, counts)
    quantiles = np.quantile(written_out, [0.5, 0.95], method="inverted_cdf")
    assert (found.p50, found.p95) == tuple(quantiles)
    assert found.mean == pytest.approx(written_out.mean())
    assert found.max == written_out.max()


@given(
    st.lists(
        st.tuples(
            st.integers(1, 9),
            st.one_of(st.just(NAN), st.integers(0, 20)),
            st.integers(0, 99),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 4),
)
def test_figures_are_those_of_a_slow_count(chunks, parts):
    freshness, rows = Freshness(), []
    for part in range(parts):
        mine = chunks[part::parts]
        if not mine:
            continue
        version, now_s = 10 + part, 100.0 + part
        freshness.add(acted(*mine), ["w0", "w1", "w2", "w3"], version, now_s)
        for count, acted_by, at_s, _ in mine:
            rows += [(max(version - acted_by, 0), now_s - at_s)] * count
    ages = [age for _, age in rows]
    lags = [lag for lag, _ in rows if lag == lag]
    lags_s = [age for lag, age in rows if lag == lag]
    values = freshness.take()
    assert values["data_age_s_p95"] == np.quantile(ages, 0.95, method="inverted_cdf")
    if not lags:
        assert len(values) == 2
        return
    for name, expected in (("versions", lags), ("s", lags_s)):
        found = [values[f"policy_lag_{name}_{each}"] for each in ("mean", "p95", "max")]
        p95 = np.quantile(expected, 0.95, method="inverted_cdf")
        assert found == [pytest.approx(np.mean(expected)), p95, max(expected)]
