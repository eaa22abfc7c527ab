"""Rows drawn from the buffer -> which policy acted in them, when, and for whom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learner.batch_arrays import BatchArrays
from learner.chunks import Chunk
from learner.stored_rows import Ring
from learner.sum_tree import Floats, Indices
from schemas.tensors import Array

_FIRST_SIZE = 64


@dataclass(frozen=True, slots=True)
class Acted:
    """The origins of rows, by chunk [N]: those of a chunk have the same.

    Attributes:
        counts: int64, how many rows are of the chunk; at least 1.
        versions: float64, of the policy; NaN where actions were random.
        at_s: float64, when the chunk's last row was done, seconds since the epoch.
        workers: int64, numbers of workers: ``Origins.workers`` has their names.
    """

    counts: Indices
    versions: Floats
    at_s: Floats
    workers: Indices


class Origins:
    """The origin of each chunk, of each row its chunk, and what was drawn of them.

    Nothing is done row by row: the rows of a chunk have its number, four bytes each,
    and what is drawn is counted by number. A number goes to another chunk once its own
    is evicted, and what was drawn of it was taken. Unrolls that are given out whole
    need no number.

    Attributes:
        workers: the names of all that were ever seen, by number.
    """

    def __init__(self, numbers: Ring | None = None) -> None:
        """Begin empty; ``numbers``: by row, that of its chunk, written here."""
        self.workers: list[str] = []
        self._numbers = numbers or Ring(0, np.int32)
        self._worker_numbers: dict[str, int] = {}
        self._versions: Floats = np.empty(0, np.float64)
        self._at_s: Floats = np.empty(0, np.float64)
        self._worker_of: Indices = np.empty(0, np.int64)
        self._by_version: dict[float, dict[Chunk, None]] = {}
        self._free: list[int] = []
        self._evicted: list[int] = []
        self._drawn: list[Array] = []
        self._learnt: list[tuple[int, float, float, int]] = []
        self._is_watched = False

    def watch(self) -> None:
        """Note what is drawn from now on; somebody has to ``take`` it."""
        self._is_watched = True

    def put(self, chunk: Chunk, arrays: BatchArrays) -> None:
        """Note where a chunk is from, whose rows are there now."""
        if not self._free:
            self._grow()
        number = self._free.pop()
        self._versions[number] = version = arrays.policy_version
        if np.isfinite(version):
            self._by_version.setdefault(version, {})[chunk] = None
        self._at_s[number] = arrays.acted_at_s
        self._worker_of[number] = self._number_of(chunk.ref.worker)
        count = chunk.ref.num_rows
        self._numbers.put(chunk.position, np.full(count, number, np.int32))

    def forget(self, chunk: Chunk) -> None:
        """Let go of a chunk that was evicted."""
        (number,) = self._numbers.get(chunk.position, 1).tolist()
        version = float(self._versions[number])
        if (same := self._by_version.get(version)) is not None:
            same.pop(chunk, None)
            if not same:
                del self._by_version[version]
        (self._evicted if self._is_watched else self._free).append(number)

    def take_older(self, version: int) -> list[Chunk]:
        """Return the chunks of policies before a version, each once, as they came.

        Chunks in which no policy acted are not among them.
        """
        older = [each for each in self._by_version if each < version]
        found = [chunk for each in older for chunk in self._by_version.pop(each)]
        return sorted(found, key=lambda chunk: chunk.position)

    def draw(self, slots: Indices) -> None:
        """Note that rows were drawn."""
        if self._is_watched:
            self._drawn.append(self._numbers.rows[slots])

    def learnt(self, worker: str, version: float, at_s: float, rows: int) -> None:
        """Note that an unroll was given out, with so many rows; at least 1."""
        if self._is_watched:
            self._learnt.append((rows, version, at_s, self._number_of(worker)))

    def take(self) -> Acted | None:
        """Return the origins of the rows drawn since the last call; None: of none."""
        drawn, self._drawn = self._drawn, []
        learnt, self._learnt = self._learnt, []
        self._free += self._evicted
        self._evicted.clear()
        if learnt:
            return _acted(learnt)
        if not drawn:
            return None
        counts = np.bincount(np.concatenate(drawn))
        numbers = np.flatnonzero(counts)
        return Acted(
            counts[numbers],
            self._versions[numbers],
            self._at_s[numbers],
            self._worker_of[numbers],
        )

    def _grow(self) -> None:
        size = len(self._at_s)
        more = np.zeros(max(_FIRST_SIZE, size))
        self._versions = np.concatenate([self._versions, more])
        self._at_s = np.concatenate([self._at_s, more])
        self._worker_of = np.concatenate([self._worker_of, more.astype(np.int64)])
        self._free += range(size, len(self._at_s))

    def _number_of(self, worker: str) -> int:
        number = self._worker_numbers.setdefault(worker, len(self.workers))
        if number == len(self.workers):
            self.workers.append(worker)
        return number


def _acted(unrolls: list[tuple[int, float, float, int]]) -> Acted:
    counts, versions, at_s, workers = zip(*unrolls, strict=True)
    return Acted(
        np.array(counts, np.int64),
        np.array(versions, np.float64),
        np.array(at_s, np.float64),
        np.array(workers, np.int64),
    )
