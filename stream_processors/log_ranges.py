"""What the log still holds of what the group has not acknowledged."""

from __future__ import annotations

import time
from collections.abc import Collection

from infra.errors import KafkaUnavailable
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.peeking import Span, make_peeker, peek
from infra.kafka.reading import committed_offsets, watermarks
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

    Raises:
        KafkaUnavailable: no answer within 30 s.
    """
    consumer = make_peeker(settings, f"{topic}-ranges")
    try:
        begin, _ = watermarks(consumer, topic, partition, _TIMEOUT_S)
        first = min(max(begin, start), stop)
        if first == stop:
            return stop, False
        span = Span(topic, partition, first, stop)
        found = peek(consumer, [span], 1, time.monotonic() + 2 * _TIMEOUT_S)[span]
    finally:
        consumer.close()
    if found.first is None and not found.is_whole:
        raise KafkaUnavailable(f"{topic}[{partition}]: nothing to read before {stop}")
    return first, found.first is not None
