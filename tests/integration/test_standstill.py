"""What the processor's watchdog asks the broker, once nothing moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer

from infra.kafka.clients import make_consumer, make_producer
from infra.settings import Settings
from schemas.records import Position
from stream_processors import log_ranges, standstill
from stream_processors.health import STILL_S, UNOWNED_S
from stream_processors.standstill import Standstill

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watchdog asks again later; here an answer has to come the first time."""
    monkeypatch.setattr(standstill, "_ANSWER_S", 60.0)
    monkeypatch.setattr(log_ranges, "_TIMEOUT_S", 60.0)


@pytest.fixture
def other_member(settings: Settings, topic: str) -> Iterator[Consumer]:
    consumer = make_consumer(
        settings,
        group=f"{topic}-group",
        client_id="other",
        # It stays in the group while the machine stalls.
        overrides={"session.timeout.ms": 60_000},
    )
    yield consumer
    consumer.close()


def wait_until_in_group(consumer: Consumer) -> None:
    deadline = time.monotonic() + 60.0
    while not consumer.assignment():
        assert time.monotonic() < deadline, "not a member within 60 s"
        consumer.poll(0.1)


def make_standstill(settings: Settings, topic: str) -> Standstill:
    return Standstill(settings, f"{topic}-group", topic)


def test_partitions_that_nobody_holds_are_noticed(
    settings: Settings,
    topic: str,
    make_topic: Callable[[], str],
    other_member: Consumer,
) -> None:
    # The group is as one whose leader did not know our topic.
    other_member.subscribe([make_topic()])
    wait_until_in_group(other_member)
    watched = make_standstill(settings, topic)
    assert watched.reason((), 100.0) == ""
    assert watched.reason((), 99.0 + UNOWNED_S) == "", "too early to ask"
    found = watched.reason((), 101.0 + UNOWNED_S)
    assert f"nobody in the group holds {topic}[0]" in found


def test_who_has_no_partition_beside_others_that_have_them_is_well(
    settings: Settings, topic: str, other_member: Consumer
) -> None:
    other_member.subscribe([topic])
    wait_until_in_group(other_member)
    watched = make_standstill(settings, topic)
    watched.reason((), 100.0)
    assert watched.reason((), 101.0 + UNOWNED_S) == ""


def test_a_record_that_is_not_read_is_noticed(settings: Settings, topic: str) -> None:
    producer = make_producer(settings, client_id="test")
    producer.produce(topic, b"v", b"k", 0)
    assert producer.flush(60.0) == 0
    at_end, behind = (Position(topic, 0, at, -1, 0) for at in (1, 0))
    watched = make_standstill(settings, topic)
    watched.reason((at_end,), 100.0)
    assert watched.reason((at_end,), 101.0 + STILL_S) == "", "all is read"
    watched.reason((behind,), 300.0)
    assert watched.reason((behind,), 299.0 + STILL_S) == "", "too early to ask"
    found = watched.reason((behind,), 301.0 + STILL_S)
    assert f"{topic}[0]: 0 is not read" in found


def test_marks_of_a_transaction_are_no_record(settings: Settings, topic: str) -> None:
    producer = make_producer(
        settings, client_id="test", overrides={"transactional.id": topic}
    )
    producer.init_transactions(60.0)
    producer.begin_transaction()
    producer.produce(topic, b"v", b"k", 0)
    producer.commit_transaction(60.0)
    before_mark = Position(topic, 0, 1, -1, 0)
    watched = make_standstill(settings, topic)
    watched.reason((before_mark,), 100.0)
    assert watched.reason((before_mark,), 101.0 + STILL_S) == ""


def test_an_answer_that_does_not_come_ends_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        def list_topics(self, *_, **__):
            return SimpleNamespace(topics={"some-topic": None})

        def describe_consumer_groups(self, groups, **_):
            return {group: Future() for group in groups}

    monkeypatch.setattr(standstill, "make_admin", lambda _: Silent())
    monkeypatch.setattr(standstill, "_ANSWER_S", 0.1)
    watched = make_standstill(settings, "some-topic")
    watched.reason((), 100.0)
    assert watched.reason((), 101.0 + UNOWNED_S) == ""


def test_a_broker_that_is_away_is_to_blame_itself(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standstill, "_ANSWER_S", 0.1)
    nowhere = settings.at("127.0.0.1:1", "127.0.0.1:1")
    watched = make_standstill(nowhere, "some-topic")
    watched.reason((), 100.0)
    assert watched.reason((), 101.0 + UNOWNED_S) == ""
