"""What a buffer of sequences keeps: rows in rings, and the states they begin with."""

from collections.abc import Mapping

import numpy as np

from learner.batch_arrays import BatchArrays, BatchMismatch, stored_dtype
from learner.chunks import Chunk
from learner.stored_rows import Ring
from learner.sum_tree import Indices
from schemas.records import SpaceField
from schemas.tensors import Array

_FIRST_SIZE = 64


class SequenceRows:
    """What a row is besides its observations, by slot.

    Attributes:
        bootstrap_steps: 0 on rows that are not learnt from, whatever the record says.
        drawable: whether the sequence that begins with the row can be drawn.
        chunks: their number, see Origins.
    """

    def __init__(self, actions: tuple[SpaceField, ...], capacity: int) -> None:
        self.capacity = capacity
        (
            self.observation_at,
            self.returns,
            self.discounts,
            self.bootstrap_steps,
            self.chunks,
            self.valid,
            self.drawable,
        ) = Ring.side_by_side(
            capacity,
            np.int64,
            np.float32,
            np.float32,
            np.int32,
            np.int32,
            np.bool_,
            np.bool_,
        )
        self._actions = {
            f.name: Ring(capacity, stored_dtype(f), f.shape) for f in actions
        }

    def put(
        self, chunk: Chunk, arrays: BatchArrays, observation_at: Indices, usable: Array
    ) -> None:
        """Write a chunk's rows; those not ``usable`` [T*B] are not learnt from."""
        count, position = chunk.ref.num_rows, chunk.position
        self.observation_at.put(position, observation_at)
        self.valid.put(position, arrays.valid.reshape(count))
        self.drawable.put(position, np.zeros(count, np.bool_))
        for name in ("returns", "discounts", "bootstrap_steps"):
            values = getattr(arrays, name).reshape(count)
            kept = np.where(usable, values, np.zeros((), values.dtype))
            getattr(self, name).put(position, kept)
        for name, values in arrays.actions.items():
            self._actions[name].put(position, values.reshape(count, *values.shape[2:]))

    def number(self, chunk: Chunk) -> int:
        """Return a chunk's number."""
        return int(self.chunks.rows[chunk.position % self.capacity])

    def first_slots(self, chunk: Chunk) -> Indices:
        """Return the slots [B] of the rows of a chunk's first step."""
        rows = np.arange(chunk.position, chunk.position + chunk.ref.num_envs)
        return rows % self.capacity

    def learnable(self, chunk: Chunk, steps: int) -> Indices:
        """Count a chunk's rows that can be learnt from, by env [B], of its first steps.

        What they bootstrap from may be missing.
        """
        ref = chunk.ref
        ahead = self.bootstrap_steps.get(chunk.position, ref.num_rows)
        usable = ahead.reshape(ref.num_steps, ref.num_envs)[:steps] > 0
        counts: Indices = np.count_nonzero(usable, 0)
        return counts

    def actions(self, slots: Indices) -> Mapping[str, Array]:
        """Return the actions of rows [L, N] by name: [L, N, ...]."""
        return {name: ring.rows[slots] for name, ring in self._actions.items()}


class StoredStates:
    """The recurrent states before the first rows of chunks, by the chunk's number."""

    def __init__(self, fields: tuple[SpaceField, ...]) -> None:
        self._fields = fields
        self._arrays = {
            f.name: np.zeros((_FIRST_SIZE, 1, *f.shape), f.dtype) for f in fields
        }

    def check(self, states: Mapping[str, Array], num_envs: int) -> None:
        """Raise BatchMismatch unless states are these fields' [B, ...], or none."""
        found = {name: (s.dtype.str, s.shape) for name, s in states.items()}
        expected = {
            f.name: (np.dtype(f.dtype).str, (num_envs, *f.shape)) for f in self._fields
        }
        if found and found != expected:
            raise BatchMismatch(f"states: expected {expected} or none, found {found}")

    def put(self, number: int, states: Mapping[str, Array], num_envs: int) -> Array:
        """Note a chunk's states; return which are finite, [B].

        Where there are none, as of random actions, they are zero: what an episode
        begins with, and what R2D2 calls the zero start state elsewhere.
        """
        finite = np.ones(num_envs, np.bool_)
        for field in self._fields:
            array = self._with_room(field.name, number, num_envs)
            array[number, :num_envs] = values = states.get(field.name, 0)
            if not isinstance(values, int):
                finite &= np.isfinite(values).reshape(num_envs, -1).all(1)
        return finite

    def _with_room(self, name: str, number: int, num_envs: int) -> Array:
        array = self._arrays[name]
        numbers, envs = array.shape[:2]
        if number >= numbers or num_envs > envs:
            numbers = 2 * numbers if number >= numbers else numbers
            shape = (max(numbers, number + 1), max(envs, num_envs), *array.shape[2:])
            larger = np.zeros(shape, array.dtype)
            larger[: array.shape[0], :envs] = array
            self._arrays[name] = array = larger
        return array

    def gather(self, numbers: Indices, envs: Indices) -> dict[str, Array]:
        """Return the states [N, ...] of environments of chunks, by name."""
        return {name: array[numbers, envs] for name, array in self._arrays.items()}
