"""Ranges of offsets -> the first record in each, and how many there are.

Offsets need not hold a record for a reader: transactions leave their marks, and what
was aborted or compacted away leaves a gap.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from infra.kafka.clients import Traffic, make_consumer
from infra.settings import Settings

_POLL_S = 0.05
_BATCH = 200


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of a partition, from ``start`` to before ``stop``."""

    topic: str
    partition: int
    start: int
    stop: int


@dataclass(slots=True)
class Peeked:
    """What was found in a span.

    Attributes:
        first: the offset of its first record; None: none was found.
        first_at_ms: when that was appended, milliseconds since the epoch.
        records: how many were seen.
        is_whole: all of the span was looked at.
    """

    first: int | None = None
    first_at_ms: int | None = None
    records: int = 0
    is_whole: bool = False


def make_peeker(settings: Settings, client_id: str) -> Consumer:
    """Make a consumer that fetches as little as it can at a time."""
    return make_consumer(
        settings,
        group=None,
        client_id=client_id,
        traffic=Traffic.CONTROL,
        overrides={
            # Where no record is left, it is told so.
            "enable.partition.eof": True,
            # A record that is larger comes all the same, alone.
            "fetch.message.max.bytes": 32_768,
            "fetch.max.bytes": 2**20,
            "queued.max.messages.kbytes": 1_024,
            "fetch.wait.max.ms": 10,
        },
    )


def peek(
    consumer: Consumer, spans: Sequence[Span], records: int, until_s: float
) -> dict[Span, Peeked]:
    """Look into spans, at most one of each partition.

    Args:
        consumer: of ``make_peeker``; is left without partitions.
        spans: to look into; the log must hold their offsets.
        records: after so many of them one is left; 1: only the first counts.
        until_s: of the monotonic clock: what was not found by then is not.
    """
    found = {span: Peeked() for span in spans}
    open_spans = {(span.topic, span.partition): span for span in spans}
    assert len(open_spans) == len(spans), "expected one span of a partition"
    try:
        # A client that does not know a topic may take a second to begin.
        consumer.list_topics(timeout=max(0.0, until_s - time.monotonic()))
        consumer.assign([TopicPartition(s.topic, s.partition, s.start) for s in spans])
        while open_spans and time.monotonic() < until_s:
            over = []
            for raw in _receive(consumer, until_s):
                place = str(raw.topic()), int(raw.partition() or 0)
                span = open_spans.get(place)
                if span is not None and _is_over(raw, span, found[span], records):
                    over.append(TopicPartition(*place))
                    del open_spans[place]
            if over and open_spans:
                consumer.incremental_unassign(over)
    except KafkaException:
        pass  # what is not known stays so
    finally:
        consumer.unassign()
    return found


def _receive(consumer: Consumer, until_s: float) -> list[Any]:
    # consume() alone would wait for all 200.
    first = consumer.poll(min(_POLL_S, max(0.0, until_s - time.monotonic())))
    return [] if first is None else [first, *consumer.consume(_BATCH, 0.0)]


def _is_over(raw: Any, span: Span, peeked: Peeked, records: int) -> bool:
    """Take in a message, or the news that there is none; return whether it was all."""
    error, offset = raw.error(), raw.offset() or 0
    is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
    if error is not None or offset >= span.stop:
        peeked.is_whole = (is_end or error is None) and offset >= span.stop
        return True
    if peeked.first is None:
        at_ms = raw.timestamp()[1]
        peeked.first, peeked.first_at_ms = offset, at_ms if at_ms > 0 else None
    peeked.records += 1
    peeked.is_whole = offset == span.stop - 1
    return peeked.is_whole or peeked.records >= records
