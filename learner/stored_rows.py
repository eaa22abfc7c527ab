"""Rings of arrays: the rows of the buffer, and the observations they refer to."""

from collections.abc import Mapping

import numpy as np

from learner.batch_arrays import BatchArrays, stored_dtype
from learner.chunks import Chunk
from learner.frame_ages import age_alone, ages_from
from learner.sum_tree import Indices
from schemas.records import SpaceField
from schemas.tensors import Array


class Ring:
    """An array [size, ...] addressed by position: serial numbers, modulo its size.

    Attributes:
        rows: the array.
        together: it, and those side by side with it: a field of each row for each.
    """

    def __init__(
        self,
        size: int,
        dtype: np.dtype[np.generic] | type[np.generic],
        row_shape: tuple[int, ...] = (),
    ) -> None:
        # zeros: the memory is taken only as it fills.
        self.rows: Array = np.zeros((size, *row_shape), dtype)
        self.together = self.rows

    @classmethod
    def side_by_side(cls, size: int, *dtypes: type[np.generic]) -> "list[Ring]":
        """Return rings whose values of a position lie together in memory.

        Rows drawn at random are nowhere in the cache: all of one come at once so.
        """
        names = [str(number) for number in range(len(dtypes))]
        whole = np.zeros(size, np.dtype(list(zip(names, dtypes, strict=True)), True))
        rings = []
        for name in names:
            ring = cls(0, np.int8)
            ring.rows, ring.together = whole[name], whole
            rings.append(ring)
        return rings

    def put(self, position: int, values: Array) -> None:
        """Write ``values`` [N, ...] from a position on; N is at most the size."""
        size = len(self.rows)
        start = position % size
        fits = min(len(values), size - start)
        self.rows[start : start + fits] = values[:fits]
        self.rows[: len(values) - fits] = values[fits:]

    def get(self, position: int, count: int) -> Array:
        """Return a copy of ``count`` rows from a position on."""
        size = len(self.rows)
        start = position % size
        fits = min(count, size - start)
        return np.concatenate(
            [self.rows[start : start + fits], self.rows[: count - fits]]
        )


class ObservationRows:
    """Observations, each kept once, in blocks of one chunk: [history + T + 1, B].

    With ``stack`` k > 1 frames are kept singly and put together when gathered: a row's
    k newest frames of its episode, oldest first; an episode's first frame stands in
    for those before it. A block then begins with the k - 1 frames before its chunk.
    A new episode begins in the row after one that is not valid.
    """

    def __init__(self, fields: tuple[SpaceField, ...], size: int, stack: int) -> None:
        self.size = size
        self._stack = stack
        self._fields = {f.name: Ring(size, stored_dtype(f), f.shape) for f in fields}
        self._finite = Ring(size, np.bool_)
        # Frames of the episode before a row, at most k - 1; below zero: not known.
        self._ages = Ring(size if stack > 1 else 1, np.int16)
        self._strides = Ring(size if stack > 1 else 1, np.int32)

    def block_rows(self, num_steps: int, num_envs: int) -> int:
        """Return how many rows a chunk's observations take."""
        return (self._stack + num_steps) * num_envs

    def at(self, chunk: Chunk, steps: Indices, envs: Indices) -> Indices:
        """Return the indices of a chunk's observations; steps 0 to T from its first."""
        num_envs = chunk.ref.num_envs
        start = chunk.block + (self._stack - 1) * num_envs
        return (start + steps * num_envs + envs) % self.size

    def locate(self, chunk: Chunk, indices: Indices) -> tuple[Array, Indices, Indices]:
        """Invert `at`: whether indices are of a chunk, and their steps and envs."""
        num_envs = chunk.ref.num_envs
        start = chunk.block + (self._stack - 1) * num_envs
        rows = (indices - start) % self.size
        steps, envs = np.divmod(rows, num_envs)
        return (indices >= 0) & (steps <= chunk.ref.num_steps), steps, envs

    def usable(self, indices: Indices) -> Array:
        """Return whether all frames of an observation are known."""
        if self._stack == 1:
            return np.ones(indices.shape, np.bool_)
        return self._ages.rows[indices] >= 0

    def finite(self, indices: Indices) -> Array:
        """Return whether an observation was finite; zeros stand for others."""
        return self._finite.rows[indices]

    def put(self, chunk: Chunk, arrays: BatchArrays, before: Chunk | None) -> None:
        """Write a chunk's observations; ``before`` is the chunk that it continues."""
        num_envs = chunk.ref.num_envs
        start = chunk.block + (self._stack - 1) * num_envs
        finite = np.ones((chunk.ref.num_steps + 1) * num_envs, np.bool_)
        for name, values in arrays.observations.items():
            flat = values.reshape(len(finite), *values.shape[2:])
            if flat.dtype.kind == "f":
                finite_values = np.isfinite(flat)
                if not finite_values.all():  # 0 * NaN is NaN: no discount helps
                    finite &= finite_values.reshape(len(finite), -1).all(1)
                    flat = np.where(finite_values, flat, np.zeros((), flat.dtype))
            self._fields[name].put(start, flat)
        self._finite.put(start, finite)
        if self._stack > 1:
            self._put_history(chunk, before)
            self._put_ages(chunk, arrays.valid, before)

    def _put_history(self, chunk: Chunk, before: Chunk | None) -> None:
        if before is None:
            return
        count = (self._stack - 1) * chunk.ref.num_envs
        last = before.block + before.ref.num_rows
        for ring in self._fields.values():
            ring.put(chunk.block, ring.get(last, count))

    def _put_ages(self, chunk: Chunk, valid: Array, before: Chunk | None) -> None:
        num_envs, full = chunk.ref.num_envs, self._stack - 1
        first: Array | int = age_alone(
            chunk.ref, is_after_blank=chunk.is_after_blank, full=full
        )
        if before is not None:
            envs = np.arange(num_envs)
            steps = np.full(num_envs, before.ref.num_steps)
            first = self._ages.rows[self.at(before, steps, envs)]
        ages = ages_from(first, valid, full)
        start = chunk.block + full * num_envs
        self._ages.put(start, ages.reshape(-1))
        self._strides.put(start, np.full(ages.size, num_envs, np.int32))

    def gather(self, indices: Indices) -> dict[str, Array]:
        """Return the observations at ``indices`` [N] by name: [N, (k,) ...]."""
        if self._stack > 1:
            back = np.arange(self._stack - 1, -1, -1)
            steps = np.minimum(back, self._ages.rows[indices][:, None])
            strides = self._strides.rows[indices][:, None]
            indices = (indices[:, None] - steps * strides) % self.size
        # take: of small rows it is several times as quick as an index.
        return {name: ring.rows.take(indices, 0) for name, ring in self._fields.items()}


class TransitionRows:
    """What a row is besides its observations, by slot."""

    def __init__(self, actions: tuple[SpaceField, ...], capacity: int) -> None:
        self.capacity = capacity
        (
            self.observation_at,
            self.bootstrap_at,  # -1: not there
            self.returns,
            self.discounts,
            self.chunks,  # their number, see Origins
        ) = Ring.side_by_side(
            capacity, np.int64, np.int64, np.float32, np.float32, np.int32
        )
        self._together = self.chunks.together
        self._actions = {
            f.name: Ring(capacity, stored_dtype(f), f.shape) for f in actions
        }

    def slots(self, chunk: Chunk) -> Indices:
        """Return the slots of a chunk's rows, time-major."""
        rows = np.arange(chunk.position, chunk.position + chunk.ref.num_rows)
        return rows % self.capacity

    def put(self, chunk: Chunk, arrays: BatchArrays, observation_at: Indices) -> None:
        """Write a chunk's rows, none of them bootstrapping from anywhere yet."""
        count, position = chunk.ref.num_rows, chunk.position
        self.observation_at.put(position, observation_at)
        self.bootstrap_at.put(position, np.full(count, -1))
        self.returns.put(position, arrays.returns.reshape(count))
        self.discounts.put(position, arrays.discounts.reshape(count))
        for name, values in arrays.actions.items():
            self._actions[name].put(position, values.reshape(count, *values.shape[2:]))

    def gather(self, slots: Indices) -> tuple[Indices, Indices, Array, Array]:
        """Return what rows [N] are: [N] each.

        Returns:
            where their observations are, and those that they bootstrap from; their
            returns and discounts.
        """
        drawn = self._together.take(slots)
        observation_at, bootstrap_at, returns, discounts, _ = (
            drawn[name].copy() for name in self._together.dtype.names or ()
        )
        return observation_at, bootstrap_at, returns, discounts

    def actions(self, slots: Indices) -> Mapping[str, Array]:
        """Return the actions of rows [N] by name: [N, ...]."""
        return {name: ring.rows.take(slots, 0) for name, ring in self._actions.items()}
