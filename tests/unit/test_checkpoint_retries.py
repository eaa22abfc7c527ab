"""A disk that is full stays full for hours: it is tried, and told, ever more seldom."""

from types import SimpleNamespace

import pytest

from learner import saver as saver_module
from learner.checkpoint import CheckpointError
from learner.loop import Learner
from learner.policy_clock import PolicyClock
from learner.saver import Saver

INTERVAL_S = 10.0
FULL = range(10, 300)


class Disk:
    """Is full for a while; notes when it was tried."""

    def __init__(self, clock):
        self.clock, self.tried = clock, []

    def write(self, epoch, number, files):
        self.tried.append(self.clock.now_s)
        if int(self.clock.now_s) in FULL:
            raise CheckpointError("the disk is full")

    def prune(self):
        pass


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(saver_module.time, "monotonic", lambda: clock.now_s)
    return clock


@pytest.fixture
def learner(clock, monkeypatch):
    def read_identity(admin, topic):
        return SimpleNamespace(), 1

    monkeypatch.setattr(saver_module, "read_identity", read_identity)
    monkeypatch.setattr(saver_module, "check_identity", lambda *args: None)
    monkeypatch.setattr(saver_module, "held_back", lambda *args: {})
    monkeypatch.setattr(saver_module, "to_files", lambda snapshot: {})
    events = []
    reporter = SimpleNamespace(
        event=lambda *event: events.append((clock.now_s, *event))
    )
    trimmer = SimpleNamespace(checkpointed=lambda offsets: None, trim=lambda: None)
    saver = Saver(Disk(clock), None, "t", lambda offsets: None, trimmer, reporter)
    spec = SimpleNamespace(checkpoint_interval_s=INTERVAL_S)
    gauges = SimpleNamespace(checkpoint_pause_s=lambda seconds: None)
    source = SimpleNamespace(feed=SimpleNamespace(dead_letters_under_way=False))
    parts = SimpleNamespace(
        context=SimpleNamespace(spec=SimpleNamespace(learner=spec)),
        intake=SimpleNamespace(
            gauges=gauges, sources=[source], clock=PolicyClock(True)
        ),
        saver=saver,
    )
    learner = Learner(parts)
    snapshot = SimpleNamespace(
        epoch=1, number=2, log=SimpleNamespace(), positions={0: 7}, oldest_offsets={}
    )
    monkeypatch.setattr(learner, "snapshot", lambda: snapshot)
    yield SimpleNamespace(learner=learner, saver=saver, events=events)
    saver.close()


def test_attempts_and_alerts_back_off_and_the_end_is_told(learner, clock):
    saver, disk = learner.saver, learner.saver._store
    for second in range(331):
        clock.now_s = float(second)
        learner.learner._save_when_due(clock.now_s)
        assert saver.wait(60.0)
    failed = [10, 12, 16, 24, 40, 72, 132, 192, 252]
    # Then, as ever, each 10 s.
    assert disk.tried == [*failed, 312, 322]
    assert saver.saved == 2 and saver.failure is None
    alerts = [at for at, kind, how, _ in learner.events if how == "alert"]
    assert alerts == failed
    at, kind, severity, reason = learner.events[-1]
    assert (at, kind, severity) == (312, "checkpoint-recovered", "info")
    assert "after 9 that were not" in reason
    assert len(learner.events) == len(failed) + 1, "it is told once"
    assert "the disk is full; it is tried again in 2 s" in learner.events[0][3]
