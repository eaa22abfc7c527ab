"""Chunks -> the rows, observations and states of their sequences, and these again."""

import numpy as np

from learner.batch_arrays import BatchArrays
from learner.bootstrap import has_target
from learner.chains import Chains
from learner.chunks import Chunk
from learner.sample import Sequences
from learner.sequence_rows import SequenceRows, StoredStates
from learner.stored_rows import ObservationRows
from learner.sum_tree import Indices
from schemas.records import EnvDescription, SpaceField
from schemas.tensors import Array


class SequenceStore:
    """The rows of chunks, and the sequences that run through them.

    Sequences are put together all N at once, by whole arrays.

    Attributes:
        rows: by slot.
        observations: each kept once.
        states: before the first rows of chunks.
        chains: which chunk goes on from which; whoever links them decides.
    """

    def __init__(
        self,
        env: EnvDescription,
        capacity: int,
        *,
        unroll_length: int,
        sequence_length: int,
        burn_in: int,
        states: tuple[SpaceField, ...],
        frame_stack: int,
    ) -> None:
        """Make an empty one; see SequenceBuffer."""
        chunk_overhead = -(-capacity * frame_stack // unroll_length)
        self.observations = ObservationRows(
            env.observation, capacity + chunk_overhead, frame_stack
        )
        self.rows = SequenceRows(env.action, capacity)
        self.states = StoredStates(states)
        self.chains = Chains()
        self._length, self._burn_in = sequence_length, burn_in

    def put(self, chunk: Chunk, arrays: BatchArrays, before: Chunk | None) -> None:
        """Write a chunk's rows; ``before`` is the chunk that it continues."""
        ref, observations = chunk.ref, self.observations
        observations.put(chunk, arrays, before)
        steps, envs = np.divmod(np.arange(ref.num_rows), ref.num_envs)
        at = observations.at(chunk, steps, envs)
        finite = np.isfinite(arrays.returns) & np.isfinite(arrays.discounts)
        usable = arrays.valid & (arrays.bootstrap_steps >= 1) & finite
        seen = observations.finite(at) & observations.usable(at)
        self.rows.put(chunk, arrays, at, usable.reshape(-1) & seen)

    def begin(self, chunk: Chunk, arrays: BatchArrays) -> Array:
        """Note the states that a chunk's sequences begin with.

        Returns:
            Which may begin, [B]: state and earlier frames are known and finite.
        """
        ref, number = chunk.ref, self.rows.number(chunk)
        self.chains.put(number, chunk)
        begins = self.states.put(number, arrays.states, ref.num_envs)
        begins &= self._knows_frames(chunk)
        return begins

    def goes_on(self, chunk: Chunk, after: Chunk) -> bool:
        """Whether sequences go on: the frames before the later one must be known."""
        if chunk.ref.num_envs != after.ref.num_envs:
            return False
        return bool(self._knows_frames(after).all())

    def _knows_frames(self, chunk: Chunk) -> Array:
        envs = np.arange(chunk.ref.num_envs)
        at = self.observations.at(chunk, np.zeros_like(envs), envs)
        return self.observations.usable(at)

    def read(self, items: Indices, weights: Array) -> tuple[Sequences, Indices]:
        """Return sequences, and the slots of their valid rows.

        Args:
            items: [N], positions of their first rows.
            weights: [N] float32, of the sample.
        """
        rows = self.rows
        numbers, slots, there = self._locate(items)
        valid = rows.valid.rows[slots] & there
        ahead = np.where(there, rows.bootstrap_steps.rows[slots], 0)
        seen = self._seen(slots, there, numbers)
        discounts = rows.discounts.rows[slots] * there
        sequences = Sequences(
            indices=items,
            weights=weights,
            observations=self._stacked(seen),
            actions=rows.actions(slots),
            returns=rows.returns.rows[slots] * there,
            discounts=self._discounts(discounts, ahead, seen),
            bootstrap_steps=ahead,
            valid=valid,
            states=self.states.gather(numbers, self.chains.envs(items, numbers)),
            behaviour={},
            burn_in=self._burn_in,
        )
        return sequences, slots[valid]

    def have_targets(self, items: Indices) -> Array:
        """Return which sequences [N] have a row to learn from after the burn-in."""
        rows = self.rows
        _, slots, there = self._locate(items)
        learnt = has_target(
            rows.valid.rows[slots] & there,
            rows.discounts.rows[slots],
            rows.bootstrap_steps.rows[slots],
        )
        found: Array = np.count_nonzero(learnt[self._burn_in :], 0) > 0
        return found

    def _locate(self, items: Indices) -> tuple[Indices, Indices, Array]:
        """Return chunks' numbers [N], slots of rows and which are there, [L, N]."""
        capacity = self.rows.capacity
        numbers = self.rows.chunks.rows[items % capacity].astype(np.int64)
        positions, lengths = self.chains.rows(items, numbers, self._length)
        there = np.less(np.arange(self._length)[:, None], lengths)
        return numbers, positions % capacity, there

    def _seen(self, slots: Indices, there: Array, numbers: Indices) -> Indices:
        """Return where observations are, [L+1, N]: behind the last row all alike."""
        at = self.rows.observation_at.rows[slots]
        # A step on within its block, also of a chunk's last row: see ObservationRows.
        after = (at[-1] + self.chains.num_envs(numbers)) % self.observations.size
        return np.concatenate([np.where(there, at, after), after[None]])

    def _stacked(self, seen: Indices) -> dict[str, Array]:
        gathered = self.observations.gather(seen.reshape(-1))
        return {
            name: values.reshape(*seen.shape, *values.shape[1:])
            for name, values in gathered.items()
        }

    def _discounts(self, discounts: Array, ahead: Array, seen: Indices) -> Array:
        """Return discounts, 0 where what is bootstrapped from is not finite."""
        finite = self.observations.finite(seen)
        if finite.all():
            return discounts
        length, count = discounts.shape
        steps = np.minimum(np.arange(length)[:, None] + ahead, length)
        kept: Array = discounts * finite[steps, np.arange(count)]
        return kept
