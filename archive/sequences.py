"""Sequences of streams that have come, as ranges: which record is a repeat?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

Ranges = list[tuple[int, int]]
"""Sequences [first, next), sorted, neither empty nor touching each other."""


class Sequences:
    """What has come of each stream; small, as streams have few holes."""

    def __init__(self) -> None:
        self._ranges: dict[str, Ranges] = {}

    def has(self, stream: str, sequence: int) -> bool:
        """Whether a sequence of a stream has come."""
        ranges = self._ranges.get(stream, [])
        at = bisect_right(ranges, sequence, key=lambda each: each[0]) - 1
        return at >= 0 and sequence < ranges[at][1]

    def add(self, stream: str, first: int, next_: int) -> None:
        """Note sequences [first, next) of a stream; some may have come before."""
        ranges = self._ranges.setdefault(stream, [])
        # Those that the new one overlaps or touches become one with it.
        begin = bisect_left(ranges, first, key=lambda each: each[1])
        end = bisect_right(ranges, next_, key=lambda each: each[0])
        joined = ranges[begin:end]
        if joined:
            first, next_ = min(first, joined[0][0]), max(next_, joined[-1][1])
        ranges[begin:end] = [(first, next_)]

    def add_all(self, streams: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Note ranges of many streams."""
        for stream, ranges in streams.items():
            for first, next_ in ranges:
                self.add(stream, first, next_)

    def to_ranges(self) -> dict[str, Ranges]:
        """Return all of it."""
        return {stream: list(ranges) for stream, ranges in self._ranges.items()}


def stream_name(worker: str, incarnation: int) -> str:
    """Return what a stream is called."""
    return f"{worker}/{incarnation}"
