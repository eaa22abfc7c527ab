"""Where a log ended at which times -> when an offset was appended; pure."""

from __future__ import annotations

from bisect import bisect_right

_POINTS = 128
_FINE = 64


class Ends:
    """The end of a log over time, coarser the longer ago: bounded.

    Two neighbours say: all offsets from the one's end to the other's were appended
    between their times.
    """

    def __init__(self) -> None:
        self._points: list[tuple[int, float]] = []
        self._record = -1

    def add(self, end: int, at_s: float, needed: int | None) -> None:
        """Take in the end; nobody asks for offsets before ``needed`` any more."""
        points = self._points
        if points and end < points[-1][0]:
            points.clear()  # the log was cut: what came there came anew
            self._record = -1
        # The end stood still: only the first and the last time of that count.
        if len(points) >= 2 and points[-2][0] == points[-1][0] == end:
            points.pop()
        points.append((end, at_s))
        if needed is not None:
            passed = bisect_right(points, needed, key=_offset) - 1
            del points[: max(0, passed)]
        if len(points) > _POINTS:
            self._points = points[:-_FINE:2] + points[-_FINE:]

    def add_record(self, offset: int, at_s: float) -> None:
        """Take in when a record was appended, where that is earlier than all known.

        Of the same record it may be known better later: by how much clocks differ.
        """
        points = self._points
        if len(points) > 1 and offset == self._record == points[0][0]:
            points[0] = offset, min(at_s, points[1][1])
        elif points and offset < points[0][0] and at_s <= points[0][1]:
            points.insert(0, (offset, at_s))
            self._record = offset

    def appended_at_s(self, offset: int) -> float | None:
        """Return when an offset was appended; None: before all that is known.

        What is not there yet comes after the last of the known times: that one.
        """
        after = bisect_right(self._points, offset, key=_offset)
        if not after:
            return None
        if after == len(self._points):
            return self._points[-1][1]
        (start, start_s), (end, end_s) = self._points[after - 1 : after + 1]
        # In the middle of its share of the time: on average that is right.
        return start_s + (end_s - start_s) * (offset - start + 0.5) / (end - start)


def _offset(point: tuple[int, float]) -> int:
    return point[0]
