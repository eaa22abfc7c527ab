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


def test_only_who_is_silent_beats(monkeypatch):
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.2)
    monkeypatch.setattr(heartbeat, "_LOOK_S", 0.01)
    silent, later = Reporter(), Reporter()
    beating = Heartbeat()
    beating.begin(silent)
    deadline_s = time.monotonic() + 30
    while silent.beats < 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    beating.begin(later)
    while later.beats < 2:
        later_before = silent.beats
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert silent.beats == later_before, "an earlier incarnation is over"
    speaking_until_s = time.monotonic() + 0.5
    while time.monotonic() < speaking_until_s:
        later.said_at_s = time.monotonic() + 1.0  # it speaks all the time
        beats = later.beats
        time.sleep(0.01)
    assert later.beats <= beats + 1


def test_a_beat_changes_nothing_that_was_told():
    progress = Progress("r")
    told = MetricsPoint("e", "r", "learner", 0, 7, 1, {"env_steps": 5.0})
    progress.add(told)
    progress.add(MetricsPoint("e", "r", "learner", 0, 7, 2, {}))
    assert progress.env_steps == 5 and progress.points["learner", 0] == told
