"""A range of a metrics topic -> its rows: all of them, or some here and there."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from infra.kafka.reading import Message, raw_until, to_message
from infra.monitoring.dashboard.rows import Row, row_of

# A long log is skimmed: so many places, and so many records at each.
PLACES = 120
PLACE_RECORDS = 30
SKIM_S = 1.0
_TIMEOUT_S = 10.0


def read_messages(
    consumer: Consumer, topic: str, start: int, stop: int
) -> list[Message]:
    """Return the records from an offset to before another.

    Raises:
        TopicError: they cannot be read.
        KafkaUnavailable: the brokers do not answer.
    """
    consumer.assign([TopicPartition(topic, 0, start)])
    found = raw_until(consumer, topic, 0, start, stop, _TIMEOUT_S)
    return list(map(to_message, found))


def rows_of(messages: list[Message]) -> list[Row]:
    """Return what the records add to curves."""
    return list(filter(None, map(row_of, messages)))


@dataclass(frozen=True)
class Skimmed:
    """Rows of places that lie evenly in a log; ``places``: of how many."""

    rows: list[Row]
    places: int


def skim(consumer: Consumer, topic: str, start: int, stop: int) -> Skimmed:
    """Read a little at PLACES between two offsets; in SKIM_S, at fewer of them.

    Raises as ``read_messages`` does.

    Args:
        consumer: fetches little at a time: of ``make_peeker``.
        topic: a metrics topic.
        start: the first offset.
        stop: the one behind the last.
    """
    found: dict[int, list[Row]] = {}
    until_s = time.monotonic() + SKIM_S
    for place in sorted(range(PLACES), key=_turn):
        first = start + (stop - start) * place // PLACES
        last = min(first + PLACE_RECORDS, stop)
        found[place] = rows_of(read_messages(consumer, topic, first, last))
        if time.monotonic() > until_s:
            break
    rows = [row for place in sorted(found) for row in found[place]]
    return Skimmed(rows, len(found))


def _turn(place: int) -> int:
    """Return when it is a place's turn: the halves first, then the quarters, ..."""
    return int(f"{place:016b}"[::-1], 2)
