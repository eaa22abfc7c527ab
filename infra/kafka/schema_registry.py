"""Subjects and versions <-> the topic of schemas, where the log decides."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING

from infra.errors import DeliveryError, RollstreamError
from infra.kafka.clients import Traffic, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import read_to_end
from infra.settings import Settings
from schemas.errors import SchemaError
from schemas.registry import shipped
from schemas.subjects import (
    Registration,
    SubjectLog,
    parse_registration,
    record_subject,
)
from schemas.topics import SCHEMAS, topic_name

TIMEOUT_S = 30.0
_ATTEMPTS = 10
_log = logging.getLogger("rollstream.schemas")


class SchemaRegistry:
    """The topic of schemas, read as far as it was at the last `refresh`.

    For one thread at a time.
    """

    def __init__(self, settings: Settings, topic: str = topic_name(SCHEMAS)) -> None:
        self.log = SubjectLog()
        self._settings = settings
        self._topic = topic
        self._next_offset = OFFSET_BEGINNING

    def refresh(self) -> None:
        """Reads what was appended since.

        Raises:
            KafkaUnavailable: The brokers do not answer.
            TopicError: The topic cannot be read, or is not the one it was.
        """
        for message in read_to_end(
            self._settings, self._topic, start=self._next_offset, timeout_s=TIMEOUT_S
        ):
            self._next_offset = message.offset + 1
            try:
                self.log.take(parse_registration(message.value))
            except SchemaError as exc:
                where = f"{self._topic} offset {message.offset}"
                _log.warning("%s is passed over: %s", where, exc)

    def register(self, subject: str, text: str) -> Registration:
        """Registers a schema, unless it is registered, and returns its version.

        1. Read to the end, and check it against every version that is there.
        2. Publish it as the version after the last.
        3. Read to the end again: it counts when the log took it. When another process
           was first with that version, go back to 1 and check against that one too.

        Raises:
            SchemaError: It is no schema of a record.
            IncompatibleSchema: The subject refuses it.
            DeliveryError: It cannot be published; it may still be, after a time-out.
            KafkaUnavailable: The brokers do not answer.
        """
        return self.register_all([(subject, text)])[0]

    def register_all(self, wanted: Iterable[tuple[str, str]]) -> list[Registration]:
        """Registers schemas at the cost of one; raises as `register` does."""
        schemas = list(wanted)
        for _ in range(_ATTEMPTS):
            self.refresh()
            plans = [self.log.plan(subject, text) for subject, text in schemas]
            missing = {
                plan.subject: plan for plan in reversed(plans) if self._new(plan)
            }
            if not missing:
                return plans
            self._publish(missing.values())
        raise DeliveryError(
            f"{self._topic}: another process was first {_ATTEMPTS} times",
            "try again",
        )

    def _new(self, plan: Registration) -> bool:
        return plan.version > len(self.log.versions(plan.subject))

    def _publish(self, plans: Iterable[Registration]) -> None:
        producer = make_producer(
            self._settings,
            client_id="schema-registry",
            traffic=Traffic.CONTROL,
            # A record that comes twice counts once, and a number for each producer
            # takes half a second to get.
            overrides={"enable.idempotence": False},
        )
        # One for each time: a sender that was refused once refuses for ever.
        sender = Sender(producer)
        for plan in plans:
            sender.send(self._topic, plan.to_value(), plan.key, partition=0)
        deadline_s = time.monotonic() + TIMEOUT_S
        while sender.flush(0.05):
            if time.monotonic() > deadline_s:
                sender.abandon()
                raise DeliveryError(
                    f"topic {self._topic}: no acknowledgement within {TIMEOUT_S:g} s",
                    "check that the brokers answer",
                )


def publish_shipped(settings: Settings) -> None:
    """Registers the schemas that shipped with this code, where they are missing.

    Readers that are older than a writer then find its schema, and other people's tools
    find all. A run does not depend on it: what cannot be done is logged.
    """
    registry = SchemaRegistry(settings)
    try:
        registry.refresh()
        missing = _missing(registry.log)
        if missing:
            registry.register_all(missing)
    except (RollstreamError, SchemaError) as exc:
        _log.warning("the schemas of this version are not published: %s", exc)


def _missing(log: SubjectLog) -> list[tuple[str, str]]:
    """Return subject and text of what shipped and is not there, but could be."""
    found = []
    for schema in shipped():
        subject = record_subject(schema.name)
        try:
            if log.find(subject, schema.text) is None:
                log.plan(subject, schema.text)
                found.append((subject, schema.text))
        except SchemaError as exc:
            _log.warning("a schema of this version is not published: %s", exc)
    return found
