"""Records that were sent -> which of a stream come late or again, and who is open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from schemas.records import StreamEnd, Unroll

MAX_HOLES = 256
"""Holes of one stream that are remembered, as by learners."""

Place = Literal["next", "late", "repeated"]


@dataclass(slots=True)
class _Stream:
    next_sequence: int
    is_open: bool = True
    # Ranges [first, end) of sequences that were passed over.
    holes: list[tuple[int, int]] = field(default_factory=list)


class SentStreams:
    """Follows what is sent, in the order of the target's log."""

    def __init__(self) -> None:
        self._streams: dict[str, dict[int, _Stream]] = {}
        self._newest_ms: dict[str, int] = {}

    def take(self, record: Unroll | StreamEnd) -> Place:
        """Take note of a record; return how it stands to what its stream had.

        Of a stream that begins in the middle, whatever is older may still come.
        """
        self._newest_ms[record.worker] = record.produced_at_ms
        streams = self._streams.setdefault(record.worker, {})
        if isinstance(record, StreamEnd):
            for incarnation, each in streams.items():
                each.is_open &= incarnation > record.incarnation
            return "next"
        stream = streams.get(record.incarnation)
        if stream is None:
            stream = streams[record.incarnation] = _Stream(0)
        place = _place(stream, record.sequence)
        if place != "next":
            return place  # it stands alone, or was there already
        stream.is_open = not record.end_of_stream
        # A newer incarnation closes the older ones, for whoever reads the log.
        for incarnation, other in streams.items():
            other.is_open &= incarnation >= record.incarnation
        return place

    def ends(self, experiment: str, run_id: str, reason: str) -> list[StreamEnd]:
        """Return what closes each worker whose stream is still open."""
        found = []
        for worker, streams in sorted(self._streams.items()):
            still = [number for number, each in streams.items() if each.is_open]
            if still:
                at_ms = self._newest_ms[worker]
                end = StreamEnd(experiment, run_id, worker, max(still), reason, at_ms)
                found.append(end)
        return found

    @property
    def num_open(self) -> int:
        """How many streams are open; of each, readers may hold a record back."""
        return sum(
            each.is_open for streams in self._streams.values()
            for each in streams.values()
        )  # fmt: skip


def _place(stream: _Stream, sequence: int) -> Place:
    if sequence >= stream.next_sequence:
        if sequence > stream.next_sequence:
            stream.holes.append((stream.next_sequence, sequence))
            del stream.holes[:-MAX_HOLES]
        stream.next_sequence = sequence + 1
        return "next"
    for index, (first, end) in enumerate(stream.holes):
        if first <= sequence < end:
            parts = [(first, sequence), (sequence + 1, end)]
            stream.holes[index : index + 1] = [p for p in parts if p[0] < p[1]]
            return "late"
    return "repeated"
