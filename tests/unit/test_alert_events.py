"""How alerts and lag get into topics, with a producer that is played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from infra.errors import DeliveryError, KafkaUnavailable, TopicError
from infra.kafka import identity
from infra.monitoring import alert_events
from infra.monitoring.alert_events import AlertSender, read_alerts
from infra.monitoring.alert_rules import AlertKey
from infra.monitoring.alert_states import Edge
from infra.settings import Settings
from tests.unit.alerting.rig import NAME, RUN_ID, published

EDGE = Edge(AlertKey("stalled", "processor"), True, "it hangs")
MOST = 10


class PlayedMessage:
    def offset(self) -> int:
        return 0


class PlayedProducer:
    """Takes so many until somebody sees their reports, as the client does."""

    def __init__(self) -> None:
        self.queued: list[tuple[str, Callable[..., None] | None]] = []
        self.taken: list[str] = []
        self.error: KafkaError | None = None
        self.purged: list[str] = []

    def produce(
        self, topic: str, *_: object, on_delivery: Callable[..., None] | None = None
    ) -> None:
        if len(self.queued) == MOST:
            raise BufferError("queue full")
        self.queued.append((topic, on_delivery))

    def poll(self, _: float) -> None:
        served, self.queued = self.queued, []
        for topic, on_delivery in served:
            if self.error is None:
                self.taken.append(topic)
            if on_delivery is not None:
                on_delivery(self.error, PlayedMessage())

    def purge(self, **_: bool) -> None:
        self.purged += [topic for topic, _ in self.queued]
        self.queued = []


class SilentProducer(PlayedProducer):
    """Gets no answer."""

    def poll(self, _: float) -> None:
        pass


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[PlayedProducer]:
    """Those that are to be made, in order."""
    found = [PlayedProducer(), PlayedProducer()]
    left = iter(found)
    monkeypatch.setattr(alert_events, "make_producer", lambda *_, **__: next(left))
    return found


def test_the_history_of_lag_does_not_end(producers: list[PlayedProducer]) -> None:
    sender = AlertSender(Settings(), 0)
    for _ in range(5 * MOST):
        sender.publish(published(), {"lag_records/processor": 1.0})
    assert len(producers[0].taken) == 5 * MOST


def test_a_sender_that_takes_nothing_any_more_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent, other = SilentProducer(), PlayedProducer()
    left = iter([silent, other])
    monkeypatch.setattr(alert_events, "make_producer", lambda *_, **__: next(left))
    sender = AlertSender(Settings(), 0)
    for _ in range(MOST + 2):
        sender.publish(published(), {"lag_records/processor": 1.0})
    assert len(silent.purged) == MOST and len(other.taken) == 1


def test_what_was_not_taken_is_not_delivered_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tried again: from a sender that still has it, it would come twice."""
    silent, other = SilentProducer(), PlayedProducer()
    left = iter([silent, other])
    monkeypatch.setattr(alert_events, "make_producer", lambda *_, **__: next(left))
    monkeypatch.setattr(alert_events, "_TAKEN_WITHIN_MS", 10)
    sender = AlertSender(Settings(), 0)
    with pytest.raises(DeliveryError):
        sender.tell(published(), EDGE)
    assert silent.purged == [f"rollstream.{NAME}.events"] and silent.queued == []
    sender.tell(published(), EDGE)
    assert other.taken == silent.purged


def test_a_refusal_is_followed_by_another_sender(
    producers: list[PlayedProducer],
) -> None:
    first, second = producers
    first.error = KafkaError(KafkaError._MSG_TIMED_OUT)
    sender = AlertSender(Settings(), 0)
    with pytest.raises(DeliveryError):
        sender.tell(published(), EDGE)
    sender.publish(published(), {"lag_records/processor": 1.0})
    sender.tell(published(), EDGE)
    assert second.taken == [f"rollstream.{NAME}.{k}" for k in ("metrics", "events")]


@pytest.mark.parametrize(
    ("answer", "error"), [(None, TopicError), (TimeoutError(), KafkaUnavailable)]
)
def test_a_topic_that_is_not_there_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, answer: Any, error: type[Exception]
) -> None:
    def found(*_: object) -> None:
        if answer is not None:
            raise answer

    monkeypatch.setattr(alert_events, "make_admin", lambda *_: None)
    monkeypatch.setattr(identity, "read_topic_identity", found)
    with pytest.raises(error):
        read_alerts(Settings(), NAME, RUN_ID, 0)
