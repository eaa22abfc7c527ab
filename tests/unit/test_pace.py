import pytest

from producers.pace import Pace


def test_a_rate_is_kept():
    pace, now_s, taken = Pace(1000.0), 50.0, 0
    while now_s < 60.0:
        assert pace.wait_s(now_s) == 0.0
        pace.took(100, now_s)
        taken += 100
        now_s += pace.wait_s(now_s)
    assert taken == pytest.approx(10_000, rel=0.05)


def test_a_pause_is_not_made_up_for():
    pace = Pace(100.0)
    pace.took(100, 0.0)
    assert pace.wait_s(0.5) == pytest.approx(0.5)
    pace.took(100, 1000.0)
    assert pace.wait_s(1000.0) == pytest.approx(0.75)


def test_without_a_limit_nothing_waits():
    pace = Pace(0.0)
    pace.took(10**9, 1.0)
    assert pace.wait_s(1.0) == 0.0
