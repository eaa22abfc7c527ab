"""References -> the batches they mean, read from the log again."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from infra.errors import KafkaUnavailable
from infra.kafka.clients import make_consumer
from infra.kafka.reading import watermarks
from infra.settings import Settings
from learner.chunks import ChunkRef, reference
from learner.feed import address
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.records import TransitionBatch

_MESSAGES_A_POLL = 64
_POLL_S = 0.1
_NO_PROGRESS_S = 30.0
_log = logging.getLogger("rollstream")

Wanted = dict[int, dict[int, ChunkRef]]


def read_referenced(
    settings: Settings, topic: str, run_id: str, chunks: Sequence[ChunkRef]
) -> Iterator[tuple[int, int, TransitionBatch]]:
    """Yield (partition, offset, batch) of every reference that the log still holds.

    A record that is not the one that was referred to is passed over, and so is what
    was deleted, or lies behind a record damaged on the broker's disk; the buffer counts
    them.

    Raises:
        KafkaUnavailable: nothing was read for 30 s.
    """
    wanted: Wanted = {}
    for chunk in chunks:
        wanted.setdefault(chunk.partition, {})[chunk.offset] = chunk
    if not wanted:
        return
    consumer = make_consumer(
        settings,
        group=None,
        client_id=f"restore-{topic}",
        overrides={"enable.partition.eof": True},
    )
    try:
        for message in _read(consumer, topic, wanted):
            partition, offset = address(message)
            found = wanted[partition].get(offset)
            batch = _batch(message) if found is not None else None
            if found and batch and is_referenced(found, run_id, batch):
                yield partition, offset, batch
    finally:
        consumer.close()


def is_referenced(chunk: ChunkRef, run_id: str, batch: TransitionBatch) -> bool:
    """Whether a batch is the one that a reference was made of."""
    found = reference(batch, chunk.partition, chunk.offset)
    return batch.run_id == run_id and found == chunk


def _read(consumer: Consumer, topic: str, wanted: Wanted) -> Iterator[Message]:
    """Yield the records from each partition's first wanted offset to its last."""
    ends = _assign(consumer, topic, wanted)
    progress_at = time.monotonic()
    while ends:
        messages = consumer.consume(_MESSAGES_A_POLL, _POLL_S)
        if messages:
            progress_at = time.monotonic()
        elif time.monotonic() - progress_at > _NO_PROGRESS_S:
            raise KafkaUnavailable(
                f"{topic}: nothing was read for {_NO_PROGRESS_S:g} s while the buffer "
                "was being restored",
                "check that the brokers answer",
            )
        for message in messages:
            error, partition = message.error(), message.partition()
            if error is None and partition in ends:
                yield message
            elif error is not None and error.code() == KafkaError._BAD_MSG:
                _log.error("%s[%s]: %s", topic, partition, error.str())
                # What the client says behind the damage is made of it.
                _drop(consumer, topic, ends, [partition])
        _drop_finished(consumer, topic, ends)


def _assign(consumer: Consumer, topic: str, wanted: Wanted) -> dict[int, int]:
    """Start at the wanted offsets that are left; return where each partition ends."""
    starts, ends = [], {}
    for partition, chunks in wanted.items():
        begin, end = watermarks(consumer, topic, partition)
        first, last = max(min(chunks), begin), min(max(chunks) + 1, end)
        if first < last:
            starts.append(TopicPartition(topic, partition, first))
            ends[partition] = last
    consumer.assign(starts)
    return ends


def _drop_finished(consumer: Consumer, topic: str, ends: dict[int, int]) -> None:
    positions = consumer.position([TopicPartition(topic, p) for p in ends])
    finished = [p.partition for p in positions if p.offset >= ends[p.partition]]
    _drop(consumer, topic, ends, finished)


def _drop(
    consumer: Consumer,
    topic: str,
    ends: dict[int, int],
    partitions: Iterable[int | None],
) -> None:
    dropped = [number for number in partitions if number in ends]
    for number in dropped:
        del ends[number]
    if dropped:
        consumer.incremental_unassign(
            [TopicPartition(topic, number) for number in dropped]
        )


def _batch(message: Message) -> TransitionBatch | None:
    try:
        return decode(message.value() or b"", TransitionBatch)
    except SchemaError as exc:
        _log.warning(
            "%s[%s]@%s: %s", message.topic(), message.partition(), message.offset(), exc
        )
        return None


def oldest_needed(
    positions: Mapping[int, int], oldest_in_buffer: Mapping[int, int]
) -> dict[int, int]:
    """Return, by partition, the first record that a restart would read."""
    return {p: min(at, oldest_in_buffer.get(p, at)) for p, at in positions.items()}
