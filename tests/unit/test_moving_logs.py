"""Offsets that are read one after the other while the log grows: never out of order."""

import itertools
from types import SimpleNamespace

import pytest

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


@pytest.fixture
def log(monkeypatch):
    log = MovingLog()
    consumer = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(log_ranges, "make_consumer", lambda *_, **__: consumer)
    monkeypatch.setattr(log_ranges, "watermarks", log.watermarks)
    monkeypatch.setattr(log_ranges, "committed_offsets", log.committed)
    return log


def test_a_log_that_grows_is_not_taken_for_another_one(log):
    for _ in range(1000):
        (found,) = log_ranges.read_ranges(SETTINGS, "group", TOPIC, [0])
        assert not found.is_another_log and found.end - found.committed == 7
