"""Small topics read whole, and offsets looked up: what every role needs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from infra.errors import KafkaUnavailable, OffsetError, TopicError
from infra.kafka.clients import Traffic, make_consumer
from infra.settings import Settings

UNKNOWN_S = 10.0
_TIMEOUT_S = 30.0
_POLL_S = 0.1
# So much of one answer's delay counts, at most, towards that there is no such topic.
_SILENCE_S = 1.0
_BATCH = 500

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Message:
    """One record of the log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """When it was appended, in milliseconds since the epoch."""

    key: str
    """Empty for a record without one."""

    value: bytes
    tombstone: bool = False
    """It says that its key is deleted; its value is empty then."""


def to_message(raw: Any) -> Message:
    """Converts what a consumer returned; the caller has checked its error."""
    key, value = raw.key(), raw.value()
    return Message(
        topic=raw.topic(),
        partition=raw.partition(),
        offset=raw.offset(),
        timestamp_ms=raw.timestamp()[1],
        key=(key or b"").decode(errors="replace"),
        value=value or b"",
        tombstone=value is None,
    )


def read_to_end(
    settings: Settings,
    topic: str,
    partition: int = 0,
    start: int = OFFSET_BEGINNING,
    timeout_s: float = _TIMEOUT_S,
) -> Iterator[Message]:
    """Yields the records from `start` to the end that the topic has now.

    The end is fixed at the call: what arrives later is not read. Gaps left by
    compaction, deletion, transactions and aborted records are passed over.

    Raises:
        OffsetError: `start` is no longer, or not yet, in the log.
        KafkaUnavailable: No progress for `timeout_s`.
    """
    with _consumer(settings, f"reader-{topic}") as consumer:
        begin, end = watermarks(consumer, topic, partition, timeout_s)
        first = begin if start == OFFSET_BEGINNING else start
        if not begin <= first <= end:
            raise OffsetError(
                f"{topic}[{partition}]: offset {first} is not in the log, which "
                f"holds {begin} to {end}",
                "read from an offset that is there",
            )
        # Told of the end, a reader of a compacted topic need not wait for records
        # that were removed.
        consumer.assign([TopicPartition(topic, partition, first)])
        yield from map(
            to_message, raw_until(consumer, topic, partition, first, end, timeout_s)
        )


def raw_until(
    consumer: Consumer,
    topic: str,
    partition: int,
    position: int,
    end: int,
    timeout_s: float,
    *,
    at_once: int = _BATCH,
    error_of: Callable[[str, int, KafkaError], TopicError] | None = None,
) -> Iterator[Any]:
    """Yields the client's messages before `end`; gaps in the offsets are passed over.

    Args:
        consumer: Is assigned the partition from `position` on, and told of its end.
        topic: Of the partition.
        partition: Its number.
        position: The first offset.
        end: The offset behind the last.
        timeout_s: How long there may be no progress.
        at_once: How many messages are fetched from the client together, at most.
        error_of: Says what it means that the partition cannot be read.

    Raises:
        KafkaUnavailable: No progress for `timeout_s`.
        TopicError: What `error_of` returns.
    """
    where = TopicPartition(topic, partition)
    last_progress = time.monotonic()
    while position < end:
        # No more than can be left: asked for more, the client waits for them.
        for raw in consumer.consume(min(at_once, end - position), _POLL_S):
            error = raw.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise (error_of or _reading_error)(topic, partition, error)
            # An offset at the end: a record that came later, or the end itself.
            if (raw.offset() or 0) >= end:
                return
            if error is None:
                yield raw
        now, before = time.monotonic(), position
        position = max(before, consumer.position([where])[0].offset)
        if position != before:
            last_progress = now
        if now - last_progress > timeout_s:
            raise KafkaUnavailable(
                f"{topic}[{partition}]: nothing was read for {timeout_s:g} s at "
                f"offset {position} of {end}",
                "check that the brokers answer, and that no transaction is left open",
            )


def _reading_error(topic: str, partition: int, error: KafkaError) -> TopicError:
    return TopicError(
        f"{topic}[{partition}] cannot be read: {error.str()}",
        "check that the topic exists and may be read",
    )


def latest_by_key(
    settings: Settings, topic: str, partition: int = 0, timeout_s: float = _TIMEOUT_S
) -> dict[str, Message]:
    """Returns the newest record of each key; deleted keys (tombstones) are absent."""
    latest: dict[str, Message] = {}
    for message in read_to_end(settings, topic, partition, timeout_s=timeout_s):
        if message.tombstone:
            latest.pop(message.key, None)
        else:
            latest[message.key] = message
    return latest


def patiently(
    ask: Callable[[float], Answer],
    timeout_s: float,
    unknown_s: float = UNKNOWN_S,
    refresh: Callable[[float], object] = lambda left_s: None,
) -> Answer:
    """Asks again while the answer is one that passes by itself.

    A broker that has just come back knows neither its topics nor its groups for a
    moment; the client returns such errors from a request instead of asking again.

    Args:
        ask: Is given the seconds that are left.
        timeout_s: After which the last error is raised.
        unknown_s: The same for a topic or partition that is said not to exist.
        refresh: Lets the client ask for the topic anew; it remembers such an answer
            for minutes, and would repeat it.

    Raises:
        KafkaException: The last error, or one that stays.
    """
    began_s = asked_at_s = time.monotonic()
    unknown_for_s = 0.0
    while True:
        left_s = began_s + timeout_s - time.monotonic()
        try:
            return ask(max(left_s, _POLL_S))
        except KafkaException as exc:
            code, now_s = exc.args[0].code(), time.monotonic()
            # A client that nobody has answered yet, for a broker or the machine stood
            # still, calls a topic unknown as well: silence is hardly a proof.
            unknown_for_s += min(now_s - asked_at_s, _SILENCE_S)
            asked_at_s = now_s
            late = now_s + _POLL_S > began_s + timeout_s
            if code in UNKNOWN:
                late = late or unknown_for_s + _POLL_S > unknown_s
            if late or code not in (*_PASSING, *UNKNOWN):
                raise
        time.sleep(_POLL_S)
        if code in UNKNOWN:
            with contextlib.suppress(KafkaException):
                refresh(max(left_s, _POLL_S))


def committed_offsets(
    consumer: Consumer,
    topic: str,
    partitions: Iterable[int],
    timeout_s: float = _TIMEOUT_S,
) -> dict[int, int]:
    """Asks for the committed offset of the consumer's group; -1 where there is none.

    Raises:
        KafkaException: The brokers do not answer in time.
    """
    wanted = [TopicPartition(topic, partition) for partition in partitions]
    found = patiently(
        lambda left_s: consumer.committed(wanted, timeout=left_s), timeout_s
    )
    return {item.partition: max(item.offset, -1) for item in found}


def watermarks(
    consumer: Consumer, topic: str, partition: int, timeout_s: float = _TIMEOUT_S
) -> tuple[int, int]:
    """Asks the broker for (first offset, next offset) of a partition.

    With read-committed isolation the end is the last stable offset.
    """
    where = TopicPartition(topic, partition)
    try:
        found = patiently(
            lambda left_s: consumer.get_watermark_offsets(where, timeout=left_s),
            timeout_s,
            refresh=lambda left_s: consumer.list_topics(topic, timeout=left_s),
        )
    except KafkaException as exc:
        error = exc.args[0]
        if error.code() in (*UNKNOWN, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            raise _reading_error(topic, partition, error) from exc
        raise KafkaUnavailable(
            f"the offsets of {topic}[{partition}] cannot be had: {error.str()}",
            "check that the brokers answer",
        ) from exc
    if found is None:
        raise KafkaUnavailable(
            f"no broker gives the offsets of {topic}[{partition}] within "
            f"{timeout_s:g} s",
            "check that the brokers answer",
        )
    return int(found[0]), int(found[1])


OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
"""What a reader meets where the log does not hold its position."""

_PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    # A new leader's, until it knows how far the others are; and of clients that know
    # another leader than the broker does.
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)

UNKNOWN = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
"""What is answered where there is no such topic or partition."""


def partitions_of(
    consumer: Consumer, topic: str, unknown_s: float = UNKNOWN_S
) -> list[int]:
    """Returns the topic's partitions in order.

    Raises:
        TopicError: It does not exist, also after `unknown_s`, or may not be read.
        KafkaUnavailable: The brokers do not answer.
    """

    def ask(left_s: float) -> list[int]:
        found = consumer.list_topics(topic, timeout=left_s).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    try:
        return patiently(ask, _TIMEOUT_S, unknown_s)
    except KafkaException as exc:
        error = exc.args[0]
        if error.code() in (*UNKNOWN, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            raise TopicError(
                f"topic {topic} cannot be read: {error.str()}",
                "check that the topic exists and may be read",
            ) from exc
        raise KafkaUnavailable(
            f"the partitions of {topic} cannot be had: {error.str()}",
            "check that the brokers answer",
        ) from exc


def beginning_offsets(consumer: Consumer, topic: str) -> dict[int, int]:
    """Returns the first offset that is still there, by partition."""
    return {
        p: watermarks(consumer, topic, p)[0] for p in partitions_of(consumer, topic)
    }


def end_offsets(consumer: Consumer, topic: str) -> dict[int, int]:
    """Returns the offset that the next record gets, by partition."""
    return {
        p: watermarks(consumer, topic, p)[1] for p in partitions_of(consumer, topic)
    }


def offset_at_time(
    consumer: Consumer, topic: str, time_ms: int, partitions: Sequence[int] = ()
) -> dict[int, int]:
    """Returns the first offset appended at or after a time, by partition.

    `time_ms` is milliseconds since the epoch, UTC. Where nothing is that young it is
    the end of the log.
    """
    wanted = list(partitions) or partitions_of(consumer, topic)
    request = [TopicPartition(topic, partition, time_ms) for partition in wanted]
    found = patiently(
        lambda left_s: consumer.offsets_for_times(request, timeout=left_s),
        _TIMEOUT_S,
        refresh=lambda left_s: consumer.list_topics(topic, timeout=left_s),
    )
    return {
        item.partition: item.offset
        if item.offset >= 0
        else watermarks(consumer, topic, item.partition)[1]
        for item in found
    }


@contextlib.contextmanager
def _consumer(settings: Settings, client_id: str) -> Iterator[Consumer]:
    consumer = make_consumer(
        settings,
        group=None,
        client_id=client_id,
        traffic=Traffic.CONTROL,
        overrides={"enable.partition.eof": True},
    )
    try:
        yield consumer
    finally:
        consumer.close()
