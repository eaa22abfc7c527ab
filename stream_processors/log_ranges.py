"""What the log still holds of what the group has not acknowledged."""

from __future__ import annotations

from collections.abc import Collection

from infra.errors import KafkaUnavailable
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import committed_offsets, read_to_end, watermarks
from infra.settings import Settings
from stream_processors.health import LogRange

_TIMEOUT_S = 15.0


def read_ranges(
    settings: Settings, group: str, topic: str, partitions: Collection[int]
) -> list[LogRange]:
    """Ask for the committed offset and the ends of each partition; blocks.

    Raises:
        KafkaUnavailable: no answer within 15 s.
    """
    if not partitions:
        return []
    consumer = make_consumer(
        settings, group=group, client_id=f"{group}-ranges", traffic=Traffic.CONTROL
    )
    try:
        # Committed first: read second, the end cannot be behind it.
        committed = committed_offsets(consumer, topic, sorted(partitions), _TIMEOUT_S)
        return [
            LogRange(
                partition,
                offset,
                *watermarks(consumer, topic, partition, _TIMEOUT_S),
            )
            for partition, offset in committed.items()
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
