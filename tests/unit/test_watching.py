"""When a foreground run is over, for who watches it."""

from __future__ import annotations

import pytest

from infra.control import watching
from infra.control.watching import Foreground

HEARD = {("learner", 0): 1}


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [100.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    return now


class Claim:
    """Whether a run has its claim, and how often that was asked."""

    def __init__(self, is_there):
        self.is_there, self.asked = is_there, 0

    def __call__(self):
        self.asked += 1
        return self.is_there


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_it_is_over_when_it_says_so_and_nobody_runs_it(clock, state):
    claim = Claim(True)
    found = Foreground(claim)
    # What it said before it was run again is no end.
    assert not found.has_ended(state)
    claim.is_there = None  # ZooKeeper does not answer
    clock[0] += 2
    assert not found.has_ended(state)
    claim.is_there = False
    clock[0] += 5
    assert not found.has_ended(state)  # it is not asked all the time
    clock[0] += 10
    assert not found.has_ended("running") and found.has_ended(state)
    assert claim.asked == 3


def test_one_that_was_killed_is_lost_after_a_silence(clock):
    found = Foreground(Claim(False))
    for beat in range(20):  # its session is gone, its roles are not
        clock[0] += 2
        assert not found.is_lost({("learner", 0): beat})
    clock[0] += 19
    assert not found.is_lost({("learner", 0): 19})
    clock[0] += 2
    assert found.is_lost({("learner", 0): 19})


@pytest.mark.parametrize("is_there", [True, None])
def test_one_that_may_run_is_not_lost_however_silent(clock, is_there):
    found = Foreground(Claim(is_there))
    for _ in range(20):
        clock[0] += 30
        assert not found.is_lost(HEARD)
