"""Who has gone, and below what all its incarnations are."""

from types import SimpleNamespace

import pytest

from learner import roster as roster_module
from learner.roster import Roster


@pytest.fixture
def roster(monkeypatch):
    consumer = SimpleNamespace(assign=lambda partitions: None)
    monkeypatch.setattr(roster_module, "make_consumer", lambda *_, **__: consumer)
    context = SimpleNamespace(settings=None, client_id="learner", topic=str)
    return Roster(context, None, epoch=1)


def tombstone(key, offset):
    return SimpleNamespace(tombstone=True, key=key, offset=offset)


def test_a_worker_that_was_removed_is_told_once_with_its_tombstone_s_offset(roster):
    roster.incarnations = {"w0": 3, "w1": 4}
    roster._take(tombstone("worker/1", 9))
    roster._take(tombstone("processor/1", 10))
    assert roster.take_removed() == {"w1": 9} and roster.take_removed() == {}
    assert roster.incarnations == {"w0": 3}


def test_a_worker_that_has_started_again_since_is_not_removed(roster):
    roster._take(tombstone("worker/0", 5))
    roster.incarnations["w0"] = 6
    assert roster.take_removed() == {}
