"""What a learner's metrics say of the time, and of the rows, since the last ones."""

import pytest

from learner import gauges
from learner.gauges import REUSE_REPORTS, Gauges


@pytest.fixture
def clock(monkeypatch):
    """The monotonic seconds, which a test sets."""
    now_s = [1000.0]
    monkeypatch.setattr(gauges.time, "monotonic", lambda: now_s[0])
    return now_s


def test_the_wait_ratio_is_the_share_of_the_time_since_the_last_report(clock):
    found = Gauges()
    clock[0] += 2.0
    found.idle_s += 0.5
    assert found.take(0, 0)["wait_ratio"] == 0.25
    clock[0] += 1.0
    found.idle_s += 1.0
    assert found.take(0, 0)["wait_ratio"] == 1.0
    clock[0] += 1.0
    assert found.take(0, 0)["wait_ratio"] == 0.0


def test_no_time_at_all_has_no_wait_ratio(clock):
    assert "wait_ratio" not in Gauges().take(0, 0)


def test_reuse_is_told_lately_and_of_the_whole_run():
    found = Gauges()
    # A learner that was started again: of before it knows the sums alone.
    values = found.take(samples=800, inserts=400)
    assert "samples_per_insert" not in values
    assert values["samples_per_insert_run"] == 2.0
    values = found.take(samples=1400, inserts=500)
    assert values["samples_per_insert"] == 6.0
    assert values["samples_per_insert_run"] == 2.8


def test_a_batch_in_some_reports_and_samples_in_all_make_an_even_ratio():
    found, ratios = Gauges(), []
    for report in range(120):
        inserts = 8192 * (1 + report // 3)  # a batch every third report
        values = found.take(samples=8192 * report, inserts=inserts)
        ratios.append(values.get("samples_per_insert"))
    # 3 samples an insert; one batch more or less in 10 is what a window can be off.
    assert all(2.7 <= ratio <= 3.4 for ratio in ratios[REUSE_REPORTS:])


def test_where_nothing_comes_any_more_there_is_no_ratio_of_late():
    found = Gauges()
    for report in range(REUSE_REPORTS + 1):
        values = found.take(samples=100 * report, inserts=50)
    assert "samples_per_insert" not in values
    assert values["samples_per_insert_run"] == 2.0 * REUSE_REPORTS


def test_a_mean_of_nothing_is_the_one_before():
    found = Gauges()
    assert "loss" not in found.take(0, 0)
    found.loss(1.0)
    found.loss(2.0)
    found.policy_lag(3, rows=10)
    found.policy_lag(6, rows=20)
    for _ in range(2):
        values = found.take(0, 0)
        assert (values["loss"], values["policy_lag_mean"]) == (1.5, 5.0)


def test_what_an_algorithm_says_of_updates_is_a_mean_over_a_report():
    gauges = Gauges()
    gauges.figures({"entropy": 0.5, "kl": 0.25})
    gauges.figures({"entropy": 0.25})
    assert {"entropy": 0.375, "kl": 0.25}.items() <= gauges.take(0, 0).items()
    gauges.figures({"kl": 1.0})
    # A mean of nothing is the one before.
    assert {"entropy": 0.375, "kl": 1.0}.items() <= gauges.take(0, 0).items()
