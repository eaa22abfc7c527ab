"""Prefix sums over priorities: which leaf does a given share of the total fall on?

Eight children to a node, so that a node's children are one cache line: a million
leaves are seven lines from the root. Sums are added up again on the way to the root,
never adjusted by differences, so they do not drift.
"""

from typing import Any, Final

import numba
import numpy as np

from schemas.tensors import Array

Floats = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]

FANOUT = 8
_CACHE_LINE_BYTES = 64
# With signatures they are compiled when this is imported, not at the first insert.
_REFUSED = "int64(int64[::1], float64[::1], int64)"
_SET = "void(float64[::1], float64[::1], int64[::1], int64[::1], float64[::1])"
_FIND = "int64[::1](float64[::1], int64[::1], float64[::1])"
_SAMPLE = "Tuple((int64[::1], float64[::1]))(float64[::1], int64[::1], float64[::1])"
# An index that may be negative is looked at for that, each time: these are none.
_U: Final = np.uint64


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
        # Of nodes alone: the least of a leaf is its value.
        self._mins = _aligned(size - int(self._starts[1]), np.inf)

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._sums[self._starts[-1]])

    def min_positive(self) -> float:
        """Return the smallest value above zero; infinity when all are zero."""
        return float(self._mins[self._starts[-1] - self._starts[1]])

    def set(self, indices: Indices, values: Floats) -> None:
        """Set the values at ``indices`` [N], one for each.

        Raises:
            IndexError: an index is outside the tree; nothing is set.
            ValueError: a value is negative or not finite; nothing is set.
        """
        indices = as_compiled(indices, np.int64)
        values = as_compiled(values, np.float64)
        if indices.shape != values.shape or indices.ndim != 1:
            raise ValueError(
                "expected as many values as indices, in one dimension, found "
                f"{values.shape} and {indices.shape}"
            )
        if (bad := _refused(indices, values, self.capacity)) >= 0:
            _refuse(indices[bad], values[bad], self.capacity)
        _set(self._sums, self._mins, self._starts, indices, values)

    def find(self, prefixes: Floats) -> Indices:
        """Return, for each prefix [N], the index at which the running sum exceeds it.

        Indices of value zero are never returned, whatever rounding does.

        Raises:
            ValueError: all values are zero.
        """
        if not self.total > 0:
            raise ValueError("expected a value above zero to find, found none")
        prefixes = as_compiled(prefixes, np.float64)
        return _find(self._sums, self._starts, prefixes)

    def sample(self, count: int, rng: np.random.Generator) -> tuple[Indices, Floats]:
        """Draw one index from each of ``count`` equal parts of the total.

        Returns:
            indices [count], and their probabilities P(i) = value_i / total [count].

        Raises:
            ValueError: all values are zero.
        """
        if not self.total > 0:
            raise ValueError("expected a value above zero to find, found none")
        indices, probabilities = _sample(self._sums, self._starts, rng.random(count))
        return indices, probabilities


def as_compiled(array: Array, dtype: type[np.generic]) -> Array:
    """Return an array as compiled code takes it: itself, wherever it can be."""
    flags = array.flags
    if array.dtype == dtype and flags.c_contiguous and flags.writeable:
        return array
    return np.require(array, dtype, ("C", "W"))


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


def _refuse(index: int, value: float, capacity: int) -> None:
    if not 0 <= index < capacity:
        raise IndexError(f"index: expected 0 to {capacity - 1}, found {index}")
    raise ValueError(f"value: expected finite and at least 0, found {value}")


@numba.njit(_REFUSED, cache=True)
def _refused(indices: Indices, values: Floats, capacity: int) -> int:
    """Return the first that cannot be set; -1: all can be."""
    for k in range(len(indices)):
        # False for NaN too.
        if not (0 <= indices[k] < capacity and 0 <= values[k] < np.inf):
            return k
    return -1


@numba.njit(cache=True)
def _parents(nodes: Array, count: int) -> int:
    """Replace the first nodes by their parents, next to each other once; how many?"""
    kept, last = 0, ~_U(0)
    for k in range(count):
        node = nodes[k] >> _U(3)
        nodes[kept] = node
        kept += node != last
        last = node
    return kept


@numba.njit(_SET, cache=True)
def _set(
    sums: Floats, mins: Floats, starts: Indices, indices: Indices, values: Floats
) -> None:
    nodes = np.empty(len(indices), np.uint64)
    for k in range(len(indices)):
        nodes[k] = indices[k]
        sums[nodes[k]] = values[k]
    count = len(nodes)
    # Level by level, so that a node's new sum sees all of this call's leaves.
    for level in range(1, len(starts)):
        count = _parents(nodes, count)
        below, here = _U(starts[level - 1]), _U(starts[level])
        leaves = _U(starts[1])  # which have no mins
        for k in range(count):
            first = below + (nodes[k] << _U(3))
            total, least = 0.0, np.inf
            for child in range(FANOUT):
                at = first + _U(child)
                total += sums[at]
                if level == 1:
                    low = sums[at] if sums[at] > 0 else np.inf
                else:
                    low = mins[at - leaves]
                least = low if low < least else least
            sums[here + nodes[k]] = total
            mins[here + nodes[k] - leaves] = least


@numba.njit(_FIND, cache=True)
def _find(sums: Floats, starts: Indices, prefixes: Floats) -> Indices:
    found = np.zeros(len(prefixes), np.uint64)
    left = np.maximum(prefixes, 0.0)
    # Level by level and without branches: the loads of many prefixes overlap.
    for level in range(len(starts) - 2, -1, -1):
        start = _U(starts[level])
        for k in range(len(found)):
            first = start + (found[k] << _U(3))
            running, below, chosen = 0.0, 0.0, _U(0)
            for child in range(FANOUT):
                running += sums[first + _U(child)]
                passed = left[k] >= running
                chosen += _U(passed)
                below = running if passed else below
            if chosen == FANOUT:  # rounding: the last child that is not zero
                chosen, below = _U(FANOUT - 1), 0.0
                while sums[first + chosen] == 0:
                    chosen -= _U(1)
            left[k] -= below
            found[k] = (found[k] << _U(3)) + chosen
    return found.view(np.int64)


@numba.njit(_SAMPLE, cache=True)
def _sample(sums: Floats, starts: Indices, uniforms: Floats) -> tuple[Indices, Floats]:
    total = sums[starts[-1]]
    part = total / max(len(uniforms), 1)
    prefixes = np.empty(len(uniforms))
    for k in range(len(uniforms)):
        prefixes[k] = (k + uniforms[k]) * part
    found = _find(sums, starts, prefixes)
    return found, sums[found] / total
