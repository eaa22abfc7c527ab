"""Records done in any order -> acknowledgements in the order of their offsets.

Faust 0.15 commits past a record that is not acknowledged while later ones are, so it
must only ever see acknowledgements without a hole.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    item: T
    done: bool = False


class Window(Generic[T]):
    """The records of one partition that are not acknowledged yet."""

    def __init__(self) -> None:
        self._queue: deque[_Entry[T]] = deque()
        self._by_offset: dict[int, _Entry[T]] = {}
        self._last = -1

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, offset: int, item: T) -> None:
        """Remember a record that was read; offsets must grow.

        Raises:
            ValueError: the offset is not beyond all that were added.
        """
        if offset <= self._last:
            raise ValueError(f"offset: expected more than {self._last}, found {offset}")
        self._last = offset
        entry = _Entry(item)
        self._by_offset[offset] = entry
        self._queue.append(entry)

    def get(self, offset: int) -> T:
        """Return a record that is not done; raises KeyError when there is none."""
        return self._by_offset[offset].item

    def done(self, offset: int) -> list[T]:
        """Mark a record done; return what can be acknowledged now, in order.

        Raises:
            KeyError: no such record is open.
        """
        self._by_offset.pop(offset).done = True
        ready = []
        while self._queue and self._queue[0].done:
            ready.append(self._queue.popleft().item)
        return ready
