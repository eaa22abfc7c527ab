"""Prefix sums over priorities: which leaf does a given share of the total fall on?

Eight children to a node, so that a node's children are one cache line: a million
leaves are seven lines from the root. Sums are added up again on the way to the root,
never adjusted by differences, so they do not drift.
"""

from typing import Any, Final

import numba
import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]

FANOUT = 8
_CACHE_LINE_BYTES = 64
_COMPILED_FOR: Final = ("C", "W")
# With signatures they are compiled when this is imported, not at the first insert.
_SET = "void(float64[::1], float64[::1], int64[::1], int64[::1], float64[::1])"
_FIND = "int64[::1](float64[::1], int64[::1], float64[::1])"


class SumTree:
    """Values by index; zero means that the index is never found.

    ``set`` has set semantics: when an index occurs twice in one call the last value
    stands, and the total counts it once.
    """

    def __init__(self, capacity: int) -> None:
        """Make a tree of ``capacity`` zeros.

        Raises:
            ValueError: ``capacity`` is less than 1.
        """
        if capacity < 1:
            raise ValueError(f"capacity: expected at least 1, found {capacity}")
        self.capacity = capacity
        self._starts = _level_starts(capacity)
        size = int(self._starts[-1]) + FANOUT
        self._sums = _aligned(size, 0.0)
        self._mins = _aligned(size, np.inf)

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._sums[self._starts[-1]])

    def min_positive(self) -> float:
        """Return the smallest value above zero; infinity when all are zero."""
        return float(self._mins[self._starts[-1]])

    def set(self, indices: Indices, values: Floats) -> None:
        """Set the values at ``indices`` [N], one for each.

        Raises:
            IndexError: an index is outside the tree; nothing is set.
            ValueError: a value is negative or not finite; nothing is set.
        """
        indices = np.require(indices, np.int64, _COMPILED_FOR)
        values = np.require(values, np.float64, _COMPILED_FOR)
        if indices.shape != values.shape or indices.ndim != 1:
            raise ValueError(
                "expected as many values as indices, in one dimension, found "
                f"{values.shape} and {indices.shape}"
            )
        if not len(indices):
            return
        _check_indices(indices, self.capacity)
        if not (values.min() >= 0 and values.max() < np.inf):  # false for NaN too
            bad = values[~((values >= 0) & (values < np.inf))][0]
            raise ValueError(f"value: expected finite and at least 0, found {bad}")
        _set(self._sums, self._mins, self._starts, indices, values)

    def find(self, prefixes: Floats) -> Indices:
        """Return, for each prefix [N], the index at which the running sum exceeds it.

        Indices of value zero are never returned, whatever rounding does.

        Raises:
            ValueError: all values are zero.
        """
        if not self.total > 0:
            raise ValueError("expected a value above zero to find, found none")
        prefixes = np.require(prefixes, np.float64, _COMPILED_FOR)
        return _find(self._sums, self._starts, prefixes)

    def sample(self, count: int, rng: np.random.Generator) -> tuple[Indices, Floats]:
        """Draw one index from each of ``count`` equal parts of the total.

        Returns:
            indices [count], and their probabilities P(i) = value_i / total [count].
        """
        parts = (np.arange(count) + rng.random(count)) * (self.total / max(count, 1))
        indices = self.find(parts)
        return indices, self._sums[indices] / self.total


def _level_starts(capacity: int) -> Indices:
    """Where each level begins, leaves first; each a multiple of the fan-out."""
    starts, size, start = [0], capacity, 0
    while True:
        start += -(-size // FANOUT) * FANOUT
        size = -(-size // FANOUT)
        starts.append(start)
        if size == 1:
            return np.array(starts, np.int64)


def _aligned(size: int, value: float) -> Floats:
    raw = np.full(size + FANOUT, value)
    skip = -raw.ctypes.data % _CACHE_LINE_BYTES // raw.itemsize
    return raw[skip : skip + size]


def _check_indices(indices: Indices, capacity: int) -> None:
    if len(indices) and not (indices.min() >= 0 and indices.max() < capacity):
        bad = indices[(indices < 0) | (indices >= capacity)][0]
        raise IndexError(f"index: expected 0 to {capacity - 1}, found {bad}")


@numba.njit(_SET, cache=True)
def _set(
    sums: Floats, mins: Floats, starts: Indices, indices: Indices, values: Floats
) -> None:
    for k in range(len(indices)):
        sums[indices[k]] = values[k]
        mins[indices[k]] = values[k] if values[k] > 0 else np.inf
    # Level by level, so that a node's new sum sees all of this call's leaves.
    nodes = indices.copy()
    count = len(nodes)
    for level in range(1, len(starts)):
        below, here = starts[level - 1], starts[level]
        kept, last = 0, -1
        for k in range(count):
            node = nodes[k] >> 3
            if node == last:
                continue
            last = nodes[kept] = node
            kept += 1
            first = below + (node << 3)
            total, least = 0.0, np.inf
            for child in range(first, first + FANOUT):
                total += sums[child]
                least = min(least, mins[child])
            sums[here + node] = total
            mins[here + node] = least
        count = kept


@numba.njit(_FIND, cache=True)
def _find(sums: Floats, starts: Indices, prefixes: Floats) -> Indices:
    found = np.zeros(len(prefixes), np.int64)
    left = np.maximum(prefixes, 0.0)
    # Level by level and without branches: the loads of many prefixes overlap.
    for level in range(len(starts) - 2, -1, -1):
        for k in range(len(found)):
            first = starts[level] + (found[k] << 3)
            running, below, chosen = 0.0, 0.0, 0
            for child in range(FANOUT):
                running += sums[first + child]
                passed = left[k] >= running
                chosen += passed
                below = running if passed else below
            if chosen == FANOUT:  # rounding: the last child that is not zero
                chosen, below = FANOUT - 1, 0.0
                while sums[first + chosen] == 0:
                    chosen -= 1
            left[k] -= below
            found[k] = (found[k] << 3) + chosen
    return found
