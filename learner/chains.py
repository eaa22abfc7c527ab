"""Chunks of a stream that follow each other -> the rows of a stretch across them."""

import numpy as np

from learner.chunks import Chunk
from learner.sum_tree import Indices

NONE = -1
_FIRST_SIZE = 64
_COLUMNS = 4


class Chains:
    """By a chunk's number: where its rows are, and which chunk goes on from it.

    Numbers are small, and used again once their chunk is gone.
    """

    def __init__(self) -> None:
        self._resize(_FIRST_SIZE)

    def _resize(self, size: int) -> None:
        # One more than numbers: the last stands for NONE, and has no steps.
        self._table: Indices = np.zeros((_COLUMNS, size + 1), np.int64)
        self._positions, self._steps, self._envs, self._next = self._table
        self._next[:] = NONE

    def put(self, number: int, chunk: Chunk) -> None:
        """Note a chunk that nothing follows yet."""
        while number >= self._table.shape[1] - 1:
            before = self._table[:, :-1]
            self._resize(2 * before.shape[1])
            self._table[:, : before.shape[1]] = before
        self._positions[number] = chunk.position
        self._steps[number] = chunk.ref.num_steps
        self._envs[number] = chunk.ref.num_envs
        self._next[number] = NONE

    def link(self, number: int, after: int) -> None:
        """Let a chunk be followed by another; NONE: by nothing."""
        self._next[number] = after

    def follows(self, number: int, after: int) -> bool:
        """Whether ``after`` is what follows a chunk."""
        return int(self._next[number]) == after

    def num_envs(self, numbers: Indices) -> Indices:
        """Return B of chunks [N]."""
        found: Indices = self._envs[numbers]
        return found

    def envs(self, items: Indices, numbers: Indices) -> Indices:
        """Return the environments of items [N], which begin in these chunks."""
        found: Indices = items - self._positions[numbers]
        return found

    def reach(self, number: int, length: int) -> int:
        """Return the steps from a chunk's first on without a hole, at most a length."""
        steps = 0
        while number != NONE and steps < length:
            steps += int(self._steps[number])
            number = int(self._next[number])
        return min(steps, length)

    def rows(
        self, items: Indices, numbers: Indices, length: int
    ) -> tuple[Indices, Indices]:
        """Return the positions of the rows of stretches that begin with a chunk.

        Args:
            items: [N], positions of rows of step 0 of their chunks: one env each.
            numbers: [N], of those chunks.
            length: L, the longest.

        Returns:
            positions [L, N], the last one again where a stretch is shorter; and how
            many rows each has, [N].
        """
        envs = self.envs(items, numbers)
        pieces, ends = self._pieces(numbers, length)
        lengths = np.minimum(ends[-1], length)
        steps = np.minimum(np.arange(length)[:, None], lengths - 1)
        which = np.zeros(steps.shape, np.int64)
        for end in ends[:-1]:
            which += steps >= end
        columns = np.arange(len(items))
        chunks = pieces[which, columns]
        steps -= (ends - self._steps[pieces])[which, columns]
        return self._positions[chunks] + steps * self._envs[chunks] + envs, lengths

    def _pieces(self, numbers: Indices, length: int) -> tuple[Indices, Indices]:
        """Return the chunks of each stretch, and the steps up to their ends, [K, N]."""
        pieces, ends = [numbers], [self._steps[numbers]]
        while ends[-1].min(initial=length) < length:
            after = self._next[pieces[-1]]
            if (after == NONE).all():
                break
            pieces.append(after)
            ends.append(ends[-1] + self._steps[after])
        return np.array(pieces), np.array(ends)
