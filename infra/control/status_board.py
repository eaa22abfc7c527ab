"""The topic of statuses -> the newest of each experiment and role, kept up to date."""

from __future__ import annotations

import logging
import time

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from infra.errors import KafkaUnavailable
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import Message, to_message, watermarks
from infra.settings import Settings
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.records import RoleStatus
from schemas.topics import STATUS, topic_name

_BATCH = 1_000
_TIMEOUT_S = 30.0
_log = logging.getLogger("rollstream.leader")


class StatusBoard:
    """Follows the topic from its beginning."""

    def __init__(self, settings: Settings) -> None:
        self._topic = topic_name(STATUS)
        self._newest: dict[str, dict[str, RoleStatus]] = {}
        self._next_offset = 0
        self._consumer = make_consumer(
            settings,
            group=None,
            client_id="statuses",
            traffic=Traffic.CONTROL,
            overrides={"enable.partition.eof": True},
        )
        self._begin()

    def of(self, experiment: str, run_id: str) -> dict[str, RoleStatus]:
        """Return the newest statuses of a run, by ``role/index``."""
        found = self._newest.get(experiment, {})
        return {key: each for key, each in found.items() if each.run_id == run_id}

    def poll(self) -> None:
        """Take in what has come."""
        self._advance(0.0)

    def read_to_end(self) -> None:
        """Take in all that there is now.

        Raises:
            KafkaUnavailable: the brokers do not answer.
            TopicError: there is no such topic.
        """
        _, end = watermarks(self._consumer, self._topic, 0)
        deadline_s = time.monotonic() + _TIMEOUT_S
        while self._next_offset < end:
            if time.monotonic() > deadline_s:
                raise KafkaUnavailable(
                    f"{self._topic}: expected to read to offset {end} within "
                    f"{_TIMEOUT_S:g} s, found {self._next_offset}",
                    "check that the brokers answer",
                )
            self._advance(0.1)

    def close(self) -> None:
        """Leave the topic."""
        self._consumer.close()

    def _begin(self) -> None:
        self._newest, self._next_offset = {}, 0
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])

    def _advance(self, timeout_s: float) -> None:
        for raw in self._consumer.consume(_BATCH, timeout_s):
            error = raw.error()
            if error is None:
                self._next_offset = (raw.offset() or 0) + 1
                self._take(to_message(raw))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._next_offset = max(self._next_offset, raw.offset() or 0)
            elif error.code() in (
                KafkaError._AUTO_OFFSET_RESET,
                KafkaError.OFFSET_OUT_OF_RANGE,
            ):
                _log.warning("%s was made anew: it is read again", self._topic)
                self._begin()
                return

    def _take(self, message: Message) -> None:
        experiment, _, key = message.key.partition("/")
        if message.tombstone:
            self._newest.get(experiment, {}).pop(key, None)
            return
        try:
            status = decode(message.value, RoleStatus)
        except SchemaError:
            return  # a record of another version says nothing that we understand
        if message.key == f"{status.experiment}/{status.role}/{status.index}":
            self._newest.setdefault(experiment, {})[key] = status
