import numpy as np
import pytest

from archive import following
from archive.archive_source import ArchiveSource
from archive.archiving import Archiving, Listener
from archive.following import follow
from tests.unit.archived_records import plain_unroll, recorded
from tests.unit.memory_source import MemorySource

ROWS = 6
"""Of an unroll: three steps of two environments."""


@pytest.fixture
def now_s(monkeypatch):
    """A clock that the test turns."""
    clock = [1_000.0]
    monkeypatch.setattr(following.time, "monotonic", lambda: clock[0])
    return clock


def test_little_waits_for_its_time_and_much_does_not(tmp_path, monkeypatch, now_s):
    monkeypatch.setattr("archive.archiving.MAX_ROWS", 4 * ROWS)
    rng = np.random.default_rng(0)
    source = MemorySource()

    def put(count):
        first = len(source.records)
        for s in range(first, first + count):
            source.records.append(recorded(plain_unroll(rng, sequence=s), s))

    # How many records come, how many seconds later; how many are left then.
    script = iter([(2, 1, 0), (3, 1, 3), (0, 58, 3), (0, 1, 0), (3, 1, 3), (1, 1, 0)])
    expected, found = [], []

    def wait(timeout_s):
        if (step := next(script, None)) is None:
            return True
        count, seconds, left = step
        put(count)
        now_s[0] += seconds
        expected.append(left)
        return False

    archiving = Archiving(lambda: source, tmp_path, Listener())
    follow(archiving, wait, lambda behind: found.append(sum(behind.values())), 60.0)
    archiving.close()
    assert found[1:] == expected
    parts = ArchiveSource(tmp_path).manifest.parts
    assert [(part.first, part.next) for part in parts] == [(0, 2), (2, 5), (5, 9)]
