"""Offsets that are read one after the other while the log grows: never out of order."""

import itertools
from types import SimpleNamespace

import pytest

from infra.monitoring import follow, status
from infra.monitoring.progress import Progress
from schemas.records import MetricsPoint, Position
from stream_processors import log_ranges

SETTINGS = SimpleNamespace()
TOPIC = "rollstream.e.trajectories"


class MovingLog:
    """Grows by 7 records between any two looks; its reader is always at its end."""

    def __init__(self):
        self._ends = itertools.count(7, 7)

    def committed(self, consumer, topic, numbers, timeout_s=1.0):
        return dict.fromkeys(numbers, next(self._ends))

    def watermarks(self, consumer, topic, number, timeout_s=1.0):
        return 0, next(self._ends)

    def progress(self):
        """What the reader has told of itself, a moment ago."""
        found = Progress("run")
        position = Position(TOPIC, 0, next(self._ends), -1, 0)
        found.add(MetricsPoint("e", "run", "processor", 0, 0, 0, {}, (position,)))
        return found


@pytest.fixture
def log(monkeypatch):
    log = MovingLog()
    consumer = SimpleNamespace(close=lambda: None)
    for module in (status, follow, log_ranges):
        monkeypatch.setattr(module, "make_consumer", lambda *_, **__: consumer)
        monkeypatch.setattr(module, "watermarks", log.watermarks)
    for module in (status, log_ranges):
        monkeypatch.setattr(module, "committed_offsets", log.committed)
    monkeypatch.setattr(status, "make_admin", lambda settings: None)
    monkeypatch.setattr(status, "partitions_of", lambda *_, **__: [0])
    monkeypatch.setattr(status, "held_back", lambda *_: {})
    return log


def test_a_lag_is_never_below_zero_while_the_log_grows(log):
    for _ in range(1000):
        found = status._group(SETTINGS, "e", "processor", TOPIC, log.progress())
        assert found.lag is not None and found.lag > 0
        assert found.committed_lag is not None and found.committed_lag > 0
    followed = SimpleNamespace(progress=log.progress(), _experiment="e", _consumer=None)
    followed._behind = lambda *args: follow.MetricsFollower._behind(followed, *args)
    topic = follow.READS["processor"]
    assert follow.MetricsFollower._lag_of(followed, "processor", topic) > 0


def test_a_group_without_members_has_its_lag_all_the_same(log):
    found = status._group(SETTINGS, "e", "processor", TOPIC, Progress("run"))
    assert found.lag is None, "nobody has told of a position"
    assert found.committed_lag == 7


def test_a_log_that_grows_is_not_taken_for_another_one(log):
    for _ in range(1000):
        (found,) = log_ranges.read_ranges(SETTINGS, "group", TOPIC, [0])
        assert not found.is_another_log and found.end - found.committed == 7
