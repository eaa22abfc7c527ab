"""Large versions are brought by a thread; stepping never waits for it."""

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from infra.errors import KafkaUnavailable
from infra.policies.chunks import addressed
from infra.policies.errors import PolicyDamaged
from producers.policy import open_graph
from producers.policy_feed import PolicyFeed
from producers.remote_tensors import RemoteTensors
from schemas.records import NO_POLICY, PolicyRef
from tests.unit.envs.graphs import RUN_ID
from tests.unit.envs.trial import until
from tests.unit.policies.records import ARRAYS, ENV, GRAPH, version


class Held:
    """Holds tensors, and gives each out when it is let."""

    def __init__(self):
        self.reader = SimpleNamespace(fetched_bytes=0)
        self.asked, self.outcomes = [], {}
        self.let, self.is_closed = threading.Semaphore(0), False

    def read(self, record):
        self.asked.append(record.version)
        assert self.let.acquire(timeout=60)
        outcome = self.outcomes[record.version]
        if isinstance(outcome, Exception):
            raise outcome
        self.reader.fetched_bytes += len(outcome)
        return outcome

    def close(self):
        self.is_closed = True


@pytest.fixture
def held():
    return Held()


@pytest.fixture
def feed(held):
    remote = RemoteTensors(lambda: held)
    made = PolicyFeed(RUN_ID, lambda graph: open_graph(graph, ENV), remote=remote)
    made.take_graph(GRAPH)
    made.remote = remote
    yield made
    held.let.release(1000)
    remote.close()


def large(held, number, value=1.0, outcome=None):
    """A version whose tensors are elsewhere."""
    arrays = {**ARRAYS, "b": np.full(3, value, np.float32)}
    inside = version(number, arrays=arrays)
    held.outcomes[number] = inside.tensors if outcome is None else outcome
    return addressed(inside, inside.tensors, (number,))


def take(feed, record):
    feed.take_version(record)
    return feed.load()


@contextmanager
def brought(feed, held, number):
    """Once one is being read let it end, and wait until it acts."""
    until(lambda: held.asked and held.asked[-1] == number)
    yield
    held.let.release()
    until(lambda: feed.load() is None and feed.ref.version == number)


def test_the_policy_before_acts_until_the_next_is_there(feed, held):
    take(feed, version(1))
    assert take(feed, large(held, 2, 7.0)) is None
    assert feed.ref == PolicyRef(0, 1) and feed.is_fetching
    with brought(feed, held, 2):
        pass
    assert feed.current.params["param/b"].tolist() == [7.0] * 3
    assert not feed.is_fetching and held.asked == [2]
    assert feed.remote.fetched_bytes == len(feed.current.tensors)


def test_what_comes_faster_than_it_travels_starves_nobody(feed, held):
    take(feed, large(held, 1))
    with brought(feed, held, 1):
        for number in (2, 3):
            take(feed, large(held, number))
    with brought(feed, held, 3):  # of those asked for meanwhile, the newest
        pass
    assert held.asked == [1, 3]


def test_a_small_version_that_overtook_it_stays(feed, held):
    take(feed, large(held, 1))
    until(lambda: held.asked == [1])
    take(feed, version(2))
    held.let.release()
    until(lambda: held.reader.fetched_bytes)
    until(lambda: feed.load() is None and feed.remote._fetched is None)
    assert feed.ref == PolicyRef(0, 2)


def test_damaged_tensors_are_refused_once(feed, held):
    take(feed, large(held, 1, outcome=PolicyDamaged("another digest")))
    held.let.release()
    refusals = []
    until(lambda: refusals.append(feed.load()) or refusals[-1])
    assert refusals[-1].reason == "another digest"
    assert feed.load() is None and feed.ref == NO_POLICY and held.asked == [1]


def test_numbers_that_are_not_finite_are_refused_wherever_they_come_from(feed, held):
    take(feed, large(held, 1, value=np.nan))
    held.let.release()
    refusals = []
    until(lambda: refusals.append(feed.load()) or refusals[-1])
    assert "expected finite numbers, found nan" in refusals[-1].reason
    assert feed.ref == NO_POLICY


def test_a_broker_that_is_away_is_asked_again(feed, held, monkeypatch):
    monkeypatch.setattr("producers.remote_tensors._RETRY_S", 0.01)
    record = large(held, 1, outcome=KafkaUnavailable("away"))
    take(feed, record)
    held.let.release(3)
    until(lambda: len(held.asked) > 3)
    held.outcomes[1] = version(1).tensors
    with brought(feed, held, 1):
        pass


def test_one_that_is_gone_is_not_asked_for_once_there_is_a_newer(feed, held):
    take(feed, large(held, 1, outcome=KafkaUnavailable("gone")))
    held.let.release()
    take(feed, large(held, 2))
    with brought(feed, held, 2):
        pass


def test_a_defect_in_the_thread_is_told_and_does_not_end_it(feed, held):
    take(feed, large(held, 1, outcome=ZeroDivisionError("defect")))
    held.let.release()
    refusals = []
    until(lambda: refusals.append(feed.load()) or refusals[-1])
    assert "ZeroDivisionError: defect" in refusals[-1].reason
    take(feed, large(held, 2))
    with brought(feed, held, 2):
        pass


def test_nothing_is_opened_where_no_version_is_large(held):
    opened = []
    remote = RemoteTensors(lambda: opened.append(held) or held)
    remote.close()
    assert remote.take() is None and opened == []


def test_leaving_closes_what_was_opened(feed, held):
    take(feed, large(held, 1))
    with brought(feed, held, 1):
        pass
    feed.remote.close()
    assert held.is_closed
