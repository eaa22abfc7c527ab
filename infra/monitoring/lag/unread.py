"""Samples -> the same, with what only the records themselves can tell.

When the first record that is not handled was appended, where no earlier sample of the
log's end tells; and whether what looks like lag holds any record at all: the mark that
ends a transaction takes an offset, and nobody ever reads it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from confluent_kafka import Consumer

from infra.kafka.peeking import Peeked, Span, make_peeker, peek
from infra.monitoring.lag.model import Place, Sample
from infra.monitoring.lag.window import Window
from infra.settings import Settings

MOST_OFFSETS = 1_024
"""Of a larger lag nobody minds the marks in it."""

MOST_RECORDS = 16
"""So many are read to count marks: records may be of megabytes each."""

_AGAIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be looked into at once.

    Attributes:
        spans: at most so many.
        time_s: for at most so long.
    """

    spans: int
    time_s: float


# Nobody looks again, and what was not counted is taken for lag.
ONE_LOOK = Limits(64, 3.0)
EACH_LOOK = Limits(32, 0.3)


@dataclass(frozen=True, slots=True)
class _Known:
    found: Peeked
    again_at_s: float
    """Monotonic; it is not all that could be known."""


class Unread:
    """Reads as few records as it can, and remembers. Not safe for threads."""

    def __init__(self, settings: Settings, client_id: str, limits: Limits) -> None:
        """Make one; connects when there is something to read."""
        self._settings = settings
        self._client_id = client_id
        self._limits = limits
        self._consumer: Consumer | None = None
        # By the topic's id as well: an offset of another topic is another record.
        self._known: dict[tuple[str, Span], _Known] = {}

    def complete(
        self, samples: Mapping[Place, Sample], windows: Mapping[Place, Window] | None
    ) -> dict[Place, Sample]:
        """Return the samples with ``markers`` and ``next_at_s`` where they are wanted.

        Args:
            samples: new ones, in no window yet.
            windows: of the samples before them; None: there is one look only.
        """
        counted, timed = {}, {}
        for place, sample in samples.items():
            span = span_of(sample, place)
            if span is None:
                continue
            window = windows.get(place) if windows else None
            before = window.newest if window else None
            if _wants_count(sample, span, before, windows is None):
                counted[place] = span
            if _wants_time(sample, window):
                timed[place] = span
        ids = {span: samples[p].topic_id for p, span in (counted | timed).items()}
        self._look_into(ids, chosen(counted.values(), timed.values(), len(ids)))
        # What nobody asks for any more is forgotten.
        self._known = {
            (topic_id, span): known
            for (topic_id, span), known in self._known.items()
            if ids.get(span) == topic_id
        }
        return dict(samples) | {
            place: self._completed(samples[place], counted.get(place), timed.get(place))
            for place in (counted | timed)
        }

    def close(self) -> None:
        """Leave the brokers."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _completed(
        self, sample: Sample, counted: Span | None, timed: Span | None
    ) -> Sample:
        if counted and (known := self._known.get((sample.topic_id, counted))):
            sample = replace(sample, markers=markers_of(counted, known.found))
        if timed and (known := self._known.get((sample.topic_id, timed))):
            at_ms = known.found.first_at_ms
            sample = replace(sample, next_at_s=at_ms / 1000 if at_ms else None)
        return sample

    def _look_into(self, ids: Mapping[Span, str], spans: list[Span]) -> None:
        now_s = time.monotonic()
        until_s = now_s + self._limits.time_s
        left = [span for span in spans if self._is_due(ids[span], span, now_s)]
        left = left[: self._limits.spans]
        while left and time.monotonic() < until_s:
            # A consumer is at one offset of a partition: the others come after it.
            of = {(span.topic, span.partition): span for span in reversed(left)}
            now = list(of.values())
            left = [span for span in left if span not in now]
            if self._consumer is None:
                self._consumer = make_peeker(self._settings, self._client_id)
            for span, found in peek(self._consumer, now, MOST_RECORDS, until_s).items():
                is_all = found.is_whole or found.records >= MOST_RECORDS
                again = float("inf") if is_all else now_s + _AGAIN_S
                self._known[ids[span], span] = _Known(found, again)

    def _is_due(self, topic_id: str, span: Span, now_s: float) -> bool:
        known = self._known.get((topic_id, span))
        return known is None or now_s >= known.again_at_s


def span_of(sample: Sample, place: Place) -> Span | None:
    """Return the offsets that are not handled; None where there are none, or unknown.

    Those that have expired are no part of it.
    """
    if sample.next is None:
        return None
    start = max(sample.next, sample.begin)
    if start >= sample.stable_end:
        return None
    return Span(place.topic, place.partition, start, sample.stable_end)


def markers_of(span: Span, found: Peeked) -> int | None:
    """Return how many offsets hold no record; None: that is not known."""
    return span.stop - span.start - found.records if found.is_whole else None


def chosen(counted: Iterable[Span], timed: Iterable[Span], most: int) -> list[Span]:
    """Return spans in the order in which they matter, each once.

    By turns the shortest that may hold nothing, and the longest whose age is not known.
    """
    by_size = sorted(set(counted), key=_size), sorted(set(timed), key=_size)[::-1]
    order: dict[Span, None] = {}
    for index in range(most):
        for spans in by_size:
            if index < len(spans):
                order.setdefault(spans[index])
    return list(order)


def _size(span: Span) -> tuple[int, str, int]:
    return span.stop - span.start, span.topic, span.partition


def _wants_count(
    sample: Sample, span: Span, before: Sample | None, only_look: bool
) -> bool:
    if span.start != sample.next or span.stop - span.start > MOST_OFFSETS:
        return False
    if only_look:
        return True
    # While it moves, what it is now is not worth a look.
    return before is not None and (
        (before.topic_id, before.next, before.stable_end)
        == (sample.topic_id, sample.next, sample.stable_end)
    )


def _wants_time(sample: Sample, window: Window | None) -> bool:
    if window is None or sample.next is None:
        return True
    newest = window.newest
    is_same = newest is not None and newest.topic_id == sample.topic_id
    return not is_same or window.appended_at_s(sample.next) is None
