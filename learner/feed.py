"""The replay topic -> decoded batches, in the order of each partition.

All partitions are assigned by hand: there is one learner, its checkpoint knows where to
go on, and offsets are committed for those who watch the lag.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, TopicPartition

from infra.control.role import RoleContext
from infra.errors import RollstreamError, TopicError
from infra.kafka.bad_records import BadRecords
from infra.kafka.clients import make_consumer
from infra.kafka.dead_letters import dead_letter
from infra.kafka.delivery import Sender
from infra.kafka.foreign_schemas import learn_schema
from infra.kafka.reading import (
    OUT_OF_RANGE,
    committed_offsets,
    partitions_of,
    watermarks,
)
from infra.monitoring.reporter import Reporter
from learner.counters import Counters
from learner.log_start import ANOTHER_LOG, LogMismatch, Start, resume_at
from schemas.codec import decode
from schemas.errors import SchemaError, UnknownSchemaId
from schemas.records import Position, SourceRef, TransitionBatch
from schemas.registry import Registry
from schemas.topics import REPLAY

SCHEMA_WAIT_S = 30.0

_MESSAGES_A_POLL = 32
_SCHEMA_POLL_S = 0.5
_GONE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
)
_log = logging.getLogger("rollstream")


class TooManyBadRecords(RollstreamError):
    """More records cannot be read than an accident explains."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A batch and where it came from."""

    partition: int
    offset: int
    batch: TransitionBatch
    message: Message


class Feed:
    """Hands out batches one by one, and knows what was handled.

    A partition's position moves when its batch is reported handled, or was put to the
    dead letters: a checkpoint taken in between reads the batch again.
    """

    def __init__(
        self,
        context: RoleContext,
        sender: Sender,
        reporter: Reporter,
        counters: Counters,
        starts: Mapping[int, Start],
        topic: str | None = None,
    ) -> None:
        """Begin to read; ``topic`` is another experiment's, None this one's."""
        self.topic = topic or context.topic(REPLAY)
        self.positions = {p: start.position for p, start in starts.items()}
        self.dead_letters_under_way = False
        self.expired_partitions: set[int] = set()
        self.damaged_partitions: set[int] = set()
        self._context = context
        self._sender = sender
        self._reporter = reporter
        self._counters = counters
        self._registry = Registry()
        self._recent = BadRecords()
        self._pending: deque[Message] = deque()
        self._unknown_since: float | None = None
        self._consumer = make_consumer(
            context.settings, group=context.group(), client_id=context.client_id
        )
        self.committed = self._read_committed()
        for partition, start in starts.items():
            self._report_expired(partition, start)
        # A client that is assigned a topic before it knows of it may take a second.
        partitions_of(self._consumer, self.topic)
        self._consumer.assign(
            [TopicPartition(self.topic, p, at) for p, at in self.positions.items()]
        )

    def fill(self, timeout_s: float) -> bool:
        """Wait for records when none is pending; return whether some are.

        Raises:
            LogMismatch: the topic was deleted or made anew.
            RecordsExpired: as ``log_start.resume_at``.
        """
        if not self._pending:
            for message in self._receive(timeout_s):
                error = message.error()
                if error is not None:
                    self._handle_error(message, error)
                elif message.partition() not in self.damaged_partitions:
                    self._pending.append(message)
        return bool(self._pending)

    def _receive(self, timeout_s: float) -> list[Message]:
        messages = self._consumer.consume(_MESSAGES_A_POLL, 0.0)
        if messages or timeout_s <= 0:
            return messages
        # consume() would wait for all 32; poll() returns with the first.
        message = self._consumer.poll(timeout_s)
        return [message] if message is not None else []

    def take(self) -> Delivered | None:
        """Return the next batch; None when none is pending, or it has to wait.

        Undecodable records become dead letters and are passed over.

        Raises:
            TooManyBadRecords: as ``refuse``.
            UnknownSchemaId: nobody told us of a schema for 30 s.
        """
        while self._pending:
            message = self._pending[0]
            value = message.value()
            try:
                batch = decode(value or b"", TransitionBatch, registry=self._registry)
            except UnknownSchemaId as exc:
                self._wait_for_schema(exc)
                return None
            except SchemaError as exc:
                self._pending.popleft()
                self.refuse(message, exc)
                continue
            self._unknown_since = None
            self._pending.popleft()
            partition, offset = address(message)
            return Delivered(partition, offset, batch, message)
        return None

    def handled(self, delivered: Delivered) -> None:
        """Move on: what this batch brought is in what a checkpoint would hold."""
        self.positions[delivered.partition] = delivered.offset + 1
        self._recent.good()

    def refuse(self, message: Message, error: Exception) -> None:
        """Put a record to the dead letters and move on.

        Raises:
            TooManyBadRecords: more than an accident explains were refused.
        """
        partition, offset = address(message)
        key, value = _bytes(message.key()), _bytes(message.value())
        source = SourceRef(self.topic, partition, offset)
        dead_letter(self._sender, self._context, source, key, value, error)
        self.dead_letters_under_way = True
        self._counters.dead_letters += 1
        self.positions[partition] = offset + 1
        if self._recent.bad():
            raise TooManyBadRecords(
                f"{self.topic}: {self._recent} cannot be read; the newest, at offset "
                f"{offset} of partition {partition}: {error}",
                "look at the dead letters; a writer may be of another version",
            )

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit next offsets to the group; never backwards. Any thread may call.

        Raises:
            KafkaException: the broker refused.
        """
        forward = {p: at for p, at in offsets.items() if at > self.committed[p]}
        if forward:
            self._consumer.commit(
                offsets=[
                    TopicPartition(self.topic, p, at) for p, at in forward.items()
                ],
                asynchronous=False,
            )
            self.committed.update(forward)

    def status(self) -> tuple[Position, ...]:
        """Return position, committed offset and what lies between, by partition."""
        return tuple(
            Position(
                self.topic,
                partition,
                position,
                self.committed[partition],
                max(0, position - self.committed[partition])
                if self.committed[partition] >= 0
                else 0,
            )
            for partition, position in self.positions.items()
        )

    def _read_committed(self) -> dict[int, int]:
        return committed_offsets(self._consumer, self.topic, self.positions)

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def _handle_error(self, message: Message, error: KafkaError) -> None:
        code = error.code()
        if message.partition() in self.damaged_partitions:
            return  # what the client says behind the damage is made of it
        if code in _GONE:
            raise LogMismatch(
                f"{self.topic}: the topic is gone: {error.str()}", ANOTHER_LOG
            )
        if code in OUT_OF_RANGE:
            self._go_on_within(address(message)[0])
        elif code == KafkaError._BAD_MSG:
            self._set_aside(address(message)[0], error)
        elif error.fatal() or code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise TopicError(f"{self.topic} cannot be read: {error.str()}")
        else:
            # Lost connections: the client tries again by itself.
            _log.debug("%s: %s", self.topic, error.str())

    def _set_aside(self, partition: int, error: KafkaError) -> None:
        """Tell of a record with a wrong checksum; its partition is read no further."""
        self.damaged_partitions.add(partition)
        self._consumer.pause([TopicPartition(self.topic, partition)])
        self._counters.corrupt_records += 1
        self._reporter.event(
            "corrupt-record",
            "alert",
            f"{self.topic}[{partition}]: {error.str()}; the partition waits there",
        )

    def _go_on_within(self, partition: int) -> None:
        """Find out why the log does not hold what comes next, and say it."""
        first, end = watermarks(self._consumer, self.topic, partition)
        on_expired = self._context.spec.learner.on_expired
        start = resume_at(partition, self.positions[partition], first, end, on_expired)
        self._report_expired(partition, start)
        self.positions[partition] = start.position
        self._consumer.seek(TopicPartition(self.topic, partition, start.position))

    def _report_expired(self, partition: int, start: Start) -> None:
        if start.expired:
            self._counters.expired_records += start.expired
            self.expired_partitions.add(partition)
            self._reporter.event(
                "expired-records",
                "alert",
                f"{self.topic}[{partition}]: {start.expired} records before offset "
                f"{start.position} were deleted before they were read",
            )

    def _wait_for_schema(self, error: UnknownSchemaId) -> None:
        now_s = time.monotonic()
        if self._unknown_since is None:
            self._unknown_since = now_s
            self._reporter.event(
                "unknown-schema",
                "warning",
                f"{self.topic}: waiting for the schema {error.schema_id}",
            )
        if now_s - self._unknown_since > SCHEMA_WAIT_S:
            raise error
        time.sleep(_SCHEMA_POLL_S)
        learn_schema(self._context.settings, self._registry, error.schema_id)


def address(message: Message) -> tuple[int, int]:
    """Return the partition and offset of a record."""
    return int(message.partition() or 0), int(message.offset() or 0)


def _bytes(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
