"""Where roles of many experiments stand, read back from their metrics topics."""

from __future__ import annotations

import uuid
from contextlib import closing

import pytest

from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.topic_admin import TopicConfig, delete_topics, ensure_topics
from infra.monitoring.lag.model import Place
from infra.monitoring.lag.standings import StandingsFollower, read_standings, read_told
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
    found = read_standings(settings, [one, other, "never-launched"])
    assert {p: (s.position, s.held) for p, s in found.items()} == {
        experiments.place(one): (3, 3),
        experiments.place(other): (9, 0),
    }
    _, rows = read_told(settings, [one])
    assert rows == {group_name(one, "processor"): 64.0}
    assert read_standings(settings, []) == {}


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
