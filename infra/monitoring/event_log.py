"""The events of an experiment: those that there are, then those that come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    TopicPartition,
)

from infra.errors import TopicError
from infra.kafka.clients import Traffic, make_admin, make_consumer
from infra.kafka.identity import read_topic_identity
from infra.kafka.reading import Message, read_to_end, to_message
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.records import Event
from schemas.topics import EVENTS, topic_name

_BATCH = 500
LOOK_S = 3.0
GONE_AFTER_S = 8.0


@dataclass(frozen=True)
class LoggedEvent:
    """An event, its offset, and when the broker appended it."""

    offset: int
    at_ms: int
    event: Event


class EventLog:
    """Reads one experiment's events of all runs, oldest first.

    What cannot be read says nothing that we understand, and is passed over.
    """

    def __init__(self, settings: Settings, experiment: str) -> None:
        self._settings = settings
        self._experiment = experiment
        self._topic = topic_name(EVENTS, experiment)
        self._next_offset = OFFSET_BEGINNING
        self._admin = make_admin(settings, f"{experiment}-events")
        self._topic_id: str | None = None
        self._gone_since_s: float | None = None

    def read(self) -> Iterator[LoggedEvent]:
        """Yield those that there are now; ``follow`` goes on behind them.

        Raises:
            TopicError: the experiment has no such topic.
            KafkaUnavailable: the brokers do not answer.
        """
        for message in read_to_end(self._settings, self._topic):
            yield from self._take(message)

    def follow(self, poll_s: float = 0.5) -> Iterator[LoggedEvent | None]:
        """Yield those that come; None when for a moment there was none.

        Brokers that are away are waited for; a topic that is made anew is followed
        from its beginning.

        Raises:
            TopicError: the topic is gone.
        """
        consumer = make_consumer(
            self._settings,
            group=None,
            client_id=f"{self._experiment}-events",
            traffic=Traffic.CONTROL,
        )
        try:
            self._assign(consumer)
            look_at_s = 0.0
            while True:
                if time.monotonic() >= look_at_s:
                    self._look(consumer)
                    look_at_s = time.monotonic() + LOOK_S
                for raw in consumer.consume(_BATCH, poll_s):
                    # Errors are of brokers that are away, or tell what a look finds.
                    if raw.error() is None:
                        yield from self._take(to_message(raw))
                yield None
        finally:
            consumer.close()

    def _assign(self, consumer: Consumer) -> None:
        consumer.assign([TopicPartition(self._topic, 0, self._next_offset)])

    def _look(self, consumer: Consumer) -> None:
        """See whether it is still the same topic: the client would wait for ever."""
        try:
            found = read_topic_identity(self._admin, self._topic)
        except (KafkaException, TimeoutError):
            return  # nothing is known of it
        now_s = time.monotonic()
        if found is None:
            # A broker that has just started may not know its topics yet.
            self._gone_since_s = self._gone_since_s or now_s
            if now_s - self._gone_since_s > GONE_AFTER_S:
                raise TopicError(
                    f"topic {self._topic}: expected it, found none: it was deleted"
                )
            return
        self._gone_since_s = None
        if self._topic_id not in (None, found.topic_id):
            self._next_offset = OFFSET_BEGINNING
            self._assign(consumer)
        self._topic_id = found.topic_id

    def _take(self, message: Message) -> Iterator[LoggedEvent]:
        self._next_offset = message.offset + 1
        event = decode_or_none(message.value, Event)
        if event and event.experiment == self._experiment:
            yield LoggedEvent(message.offset, message.timestamp_ms, event)


class OfNewestRun:
    """Says whether an event is of the newest run, also when that changes."""

    def __init__(
        self, run_id: str, older: set[str], read_run_id: Callable[[], str]
    ) -> None:
        """Begin with a run.

        Args:
            run_id: the newest.
            older: runs that are known not to be.
            read_run_id: asks for the newest again.
        """
        self._run_id = run_id
        self._older = older
        self._read_run_id = read_run_id

    def __call__(self, event: Event) -> bool:
        """Ask about an event; one of a run that is not known yet makes it ask."""
        if event.run_id != self._run_id and event.run_id not in self._older:
            self._older.add(self._run_id)
            self._run_id = self._read_run_id()
            self._older.add(event.run_id)
            self._older.discard(self._run_id)
        return event.run_id == self._run_id
