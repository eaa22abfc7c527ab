"""What the log still holds of what the group has not acknowledged."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import TopicPartition

from infra.errors import KafkaUnavailable
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import read_to_end, watermarks
from infra.settings import Settings
from stream_processors.health import LogRange

_TIMEOUT_S = 15.0


def read_ranges(
    settings: Settings, group: str, topic: str, partitions: Iterable[int]
) -> list[LogRange]:
    """Ask for the committed offset and the ends of each partition; blocks.

    Raises:
        KafkaUnavailable: no answer within 15 s.
    """
    wanted = [TopicPartition(topic, partition) for partition in sorted(partitions)]
    if not wanted:
        return []
    consumer = make_consumer(
        settings, group=group, client_id=f"{group}-ranges", traffic=Traffic.CONTROL
    )
    try:
        # Committed first: read second, the end cannot be behind it.
        committed = consumer.committed(wanted, timeout=_TIMEOUT_S)
        return [
            LogRange(
                each.partition,
                max(-1, each.offset),
                *watermarks(consumer, topic, each.partition, _TIMEOUT_S),
            )
            for each in committed
        ]
    finally:
        consumer.close()


def first_offset(
    settings: Settings, topic: str, partition: int, start: int, stop: int
) -> tuple[int, bool]:
    """Look into the offsets from ``start`` to before ``stop``; blocks.

    Returns:
        The first of them that the log still holds, and whether there is any committed
        record among those (there is none where transactions left only their marks).
    """
    consumer = make_consumer(
        settings, group=None, client_id=f"{topic}-ranges", traffic=Traffic.CONTROL
    )
    try:
        begin, _ = watermarks(consumer, topic, partition, _TIMEOUT_S)
    finally:
        consumer.close()
    first = min(max(begin, start), stop)
    if first == stop:
        return stop, False
    for message in read_to_end(settings, topic, partition, first):
        return first, message.offset < stop
    raise KafkaUnavailable(f"{topic}[{partition}]: nothing to read before {stop}")
