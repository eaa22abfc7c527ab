"""Where roles of many experiments stand, read back from their metrics topics."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import closing
from types import SimpleNamespace

import pytest

from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.topic_admin import TopicConfig, delete_topics, ensure_topics
from infra.monitoring.lag import standings
from infra.monitoring.lag.model import Place
from infra.monitoring.lag.standings import StandingsFollower, read_told
from schemas.codec import encode
from schemas.records import MetricsPoint, Position
from schemas.topics import METRICS, TRAJECTORIES, group_name, topic_config, topic_name
from tests.integration.lag_rig import wait_until

pytestmark = pytest.mark.kafka

RUN = "20260101T000000-aaaaaa"


class Experiments:
    """Two of them, whose processors tell of a partition each."""

    def __init__(self, settings):
        self.names = [f"told-{uuid.uuid4().hex[:8]}" for _ in range(2)]
        self.topics = [topic_name(METRICS, name) for name in self.names]
        ensure_topics(
            settings, [TopicConfig(t, 1, topic_config(METRICS)) for t in self.topics]
        )
        self._sender = Sender(make_producer(settings, client_id="test"))

    def tell(self, name, position, held=0, run=RUN):
        where = Position(topic_name(TRAJECTORIES, name), 0, position, -1, held)
        values = {"env_steps": 64.0 * position, "batches": float(position)}
        point = MetricsPoint(name, run, "processor", 0, 1, 0, values, (where,))
        topic = topic_name(METRICS, name)
        self._sender.send_and_wait(topic, encode(point), "processor/0")

    def place(self, name):
        topic = topic_name(TRAJECTORIES, name)
        return Place(group_name(name, "processor"), topic, 0)


@pytest.fixture
def experiments(settings):
    found = Experiments(settings)
    yield found
    delete_topics(settings, found.topics)


def test_the_newest_standings_are_read_at_once(settings, experiments):
    one, other = experiments.names
    for position in (1, 2, 3):
        experiments.tell(one, position, held=position)
    experiments.tell(other, 9)
    found, rows = read_told(settings, [one, other, "never-launched"])
    assert {p: (s.position, s.held) for p, s in found.items()} == {
        experiments.place(one): (3, 3),
        experiments.place(other): (9, 0),
    }
    assert rows == {group_name(name, "processor"): 64.0 for name in (one, other)}
    assert read_told(settings, []) == ({}, {})


def test_standings_are_followed_from_the_last_ones_on(settings, experiments):
    one, other = experiments.names
    experiments.tell(one, 5)
    with closing(StandingsFollower(settings)) as follower:
        follower.follow([one])

        def position_of(name):
            standing = follower.hear(0.05).get(experiments.place(name))
            return standing.position if standing else None

        wait_until(lambda: position_of(one) == 5, "what was told last")
        experiments.tell(one, 6)
        wait_until(lambda: position_of(one) == 6, "what is told now")
        experiments.tell(other, 7)
        follower.follow([one, other])
        wait_until(lambda: position_of(other) == 7, "one more is followed")
        assert follower.rows_per_record[group_name(other, "processor")] == 64.0
        follower.follow([other])
        assert list(follower.hear()) == [experiments.place(other)]


@pytest.fixture
def ahead(monkeypatch):
    """This host's clock, for who hears standings, is so many seconds ahead."""

    def set_to(ahead_s):
        clocks = SimpleNamespace(
            time=lambda: time.time() + ahead_s, monotonic=time.monotonic
        )
        monkeypatch.setattr(standings, "time", clocks)

    return set_to


@pytest.fixture
def telling(experiments):
    """The first of them tells each half second."""
    is_over = threading.Event()

    def tell():
        position = 1
        while not is_over.wait(0.5):
            experiments.tell(experiments.names[0], position)
            position += 1

    thread = threading.Thread(target=tell)
    thread.start()
    yield
    is_over.set()
    thread.join()


# Wrong by as much as a clock is apart, or right but for what a busy machine adds.
APART_S, SLACK_S = 60.0, 30.0


@pytest.mark.parametrize("ahead_s", [-APART_S, 0.0, APART_S])
def test_one_look_knows_who_is_there_by_a_clock_that_differs(
    settings, experiments, telling, ahead, ahead_s, monkeypatch
):
    monkeypatch.setattr(standings, "_LISTEN_S", 60.0)
    one = experiments.names[0]
    wait_until(lambda: experiments.place(one) in read_told(settings, [one])[0], "one")
    ahead(ahead_s)
    found, _ = read_told(settings, [one])
    age_s = time.time() + ahead_s - found[experiments.place(one)].at_s
    assert -1 < age_s < SLACK_S


def test_followers_know_who_is_there_by_a_clock_that_differs(
    settings, experiments, telling, ahead
):
    ahead(APART_S)
    with closing(StandingsFollower(settings)) as follower:
        follower.follow(experiments.names)

        def is_known():
            told = follower.hear(0.05).get(experiments.place(experiments.names[0]))
            return told is not None and told.ahead_s is not None and told

        standing = wait_until(is_known, "how far the clocks are apart")
    assert standing.ahead_s == pytest.approx(APART_S, abs=SLACK_S)
    assert -1 < time.time() + APART_S - standing.at_s < SLACK_S


def test_who_tells_nothing_any_more_is_silent_for_one_look(
    settings, experiments, ahead, monkeypatch
):
    monkeypatch.setattr(standings, "_LISTEN_S", 0.5)
    one = experiments.names[0]
    experiments.tell(one, 5)
    ahead(APART_S)  # it might as well be so long ago
    found, _ = read_told(settings, [one])
    age_s = time.time() + APART_S - found[experiments.place(one)].at_s
    assert age_s > APART_S - 1
