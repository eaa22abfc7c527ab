"""A process that is silent by its work beats; one that speaks does not."""

import time
from types import SimpleNamespace

from infra.monitoring import heartbeat
from infra.monitoring.heartbeat import Heartbeat
from infra.monitoring.progress import Progress
from schemas.records import MetricsPoint


class Reporter(SimpleNamespace):
    def __init__(self):
        super().__init__(said_at_s=time.monotonic(), beats=0)

    def beat(self):
        self.said_at_s = time.monotonic()
        self.beats += 1


class Speaking:
    """Speaks all the time; counts how often it was looked at."""

    beats = looks = 0

    @property
    def said_at_s(self):
        self.looks += 1
        return time.monotonic()

    def beat(self):
        self.beats += 1


def test_only_who_is_silent_beats(monkeypatch):
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.2)
    monkeypatch.setattr(heartbeat, "_LOOK_S", 0.01)
    silent, later, speaking = Reporter(), Reporter(), Speaking()
    beating = Heartbeat()
    beating.begin(silent)
    deadline_s = time.monotonic() + 60
    while silent.beats < 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    beating.begin(later)
    while later.beats < 1:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    before = silent.beats
    while later.beats < 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert silent.beats == before, "an earlier incarnation is over"
    beating.begin(speaking)
    while speaking.looks < 20:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    beating.end()
    assert speaking.beats == 0


def test_a_beat_changes_nothing_that_was_told():
    progress = Progress("r")
    told = MetricsPoint("e", "r", "learner", 0, 7, 1, {"env_steps": 5.0})
    progress.add(told)
    progress.add(MetricsPoint("e", "r", "learner", 0, 7, 2, {}))
    assert progress.env_steps == 5 and progress.points["learner", 0] == told
