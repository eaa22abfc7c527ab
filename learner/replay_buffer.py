"""Transition batches -> prioritised samples of transitions.

Observations are addressed by step and kept once: a row refers to its observation and to
the one it bootstraps from, which may lie in a later batch of its stream. A row can be
sampled once both are there.
"""

from collections.abc import Iterable

import numpy as np

from learner.batch_arrays import BatchArrays, BatchMismatch, open_batch
from learner.chunks import Chunk, ChunkRef, Chunks, References, Waiting, reference
from learner.given_back import given_back
from learner.origins import Origins
from learner.priorities import Priorities
from learner.rereading import FetchedBatch, read_again
from learner.sample import Drawn, Sample
from learner.stored_rows import ObservationRows, TransitionRows
from learner.sum_tree import Floats, Indices
from schemas.experiment import ReplaySpec
from schemas.records import EnvDescription, TransitionBatch
from schemas.tensors import Array

__all__ = ["BatchMismatch", "ChunkRef", "References", "ReplayBuffer", "Sample"]


class ReplayBuffer:
    """A ring of rows that evicts whole batches, oldest first.

    A position is a row's serial number, its slot the position modulo the capacity; a
    position that was evicted is never used again.

    Attributes:
        rows: valid rows held, by the records' own flags.
        samplable_rows: rows that can be sampled now.
        learnable_rows: those, and rows that wait for what they bootstrap from.
        is_full: rows were evicted for others: it never holds many more than now.
        refused_rows: cumulative, valid rows that never can be sampled (not finite, no
            bootstrap step, frames before them not known).
        dropped_rows: cumulative, those, and rows that left while they waited.
        origins: which policy acted in a row, when, and for which worker.
    """

    def __init__(
        self,
        env: EnvDescription,
        replay: ReplaySpec,
        *,
        unroll_length: int,
        frame_stack: int = 1,
    ) -> None:
        """Make an empty buffer.

        Args:
            env: what the batches' fields must be; single frames.
            replay: capacity in rows, invalid ones included, and priorities.
            unroll_length: the usual T, which sizes the ring of observations; shorter
                batches fill that ring before the rows' and evict earlier.
            frame_stack: how many frames an observation of a sample has.
        """
        capacity = replay.capacity
        self._env = env
        self._stacks_frames = frame_stack > 1
        chunk_overhead = -(-capacity * frame_stack // unroll_length)
        self._observations = ObservationRows(
            env.observation, capacity + chunk_overhead, frame_stack
        )
        self._transitions = TransitionRows(env.action, capacity)
        self._priorities = Priorities(replay)
        self._chunks = Chunks(capacity, self._observations.size)
        self.origins = Origins(self._transitions.chunks)
        self.rows = self.samplable_rows = self.learnable_rows = 0
        self.refused_rows = self.dropped_rows = 0
        self.is_full = False

    def insert(self, batch: TransitionBatch, partition: int, offset: int) -> int:
        """Take in a batch that was read at an address; return its valid rows.

        Raises:
            BatchMismatch: it is not of this environment; nothing is changed.
            SchemaError: a tensor cannot be opened; nothing is changed.
            ValueError: it does not fit, or is in the buffer already.
        """
        arrays = self._open(batch)
        chunk = self._reserve(reference(batch, partition, offset))
        priorities, valid = arrays.priorities.reshape(-1), arrays.valid.reshape(-1)
        self._fill(chunk, arrays, self._priorities.completed(priorities, valid))
        return chunk.valid_rows

    def pass_over(self, batch: TransitionBatch) -> None:
        """Note a batch without a valid row: it gets no room.

        Rows before it look no further than its first observation, which is also the
        last of the batch before it. With stacked frames an episode begins behind it.
        """
        if self._stacks_frames:
            end_step = batch.first_step + batch.num_steps
            self._chunks.note_blank(batch.worker, batch.incarnation, end_step)

    def over_before(self, worker: str, incarnation: int) -> None:
        """Do nothing: rows that wait for what will not come are never drawn."""

    def sample(self, batch_size: int, beta: float, rng: np.random.Generator) -> Sample:
        """Draw rows by priority, one from each of ``batch_size`` equal parts.

        Raises:
            ValueError: no row can be sampled.
        """
        drawn = self.draw(batch_size, rng)
        # (N P)^-beta / (N P_least)^-beta: N cancels.
        return self.gather(drawn.slots, (drawn.probabilities / drawn.least) ** -beta)

    def draw(self, count: int, rng: np.random.Generator) -> Drawn:
        """Draw rows as ``sample`` does; raises as that."""
        return self._priorities.draw(count, rng)

    def gather(self, slots: Indices, weights: Floats) -> Sample:
        """Return what was drawn, with the weights [N] that it is to have."""
        self.origins.draw(slots)
        rows, observations = self._transitions, self._observations.gather
        first = self._chunks.first_position
        observation_at, bootstrap_at, returns, discounts = rows.gather(slots)
        return Sample(
            indices=first + (slots - first) % rows.capacity,
            weights=weights.astype(np.float32),
            observations=observations(observation_at),
            actions=rows.actions(slots),
            returns=returns,
            discounts=discounts,
            bootstrap_observations=observations(bootstrap_at),
        )

    def update_priorities(self, indices: Indices, td_errors: Array) -> None:
        """Set the priorities of sampled rows from their unweighted TD errors.

        Rows that were evicted since, and errors that are not finite, are ignored.
        """
        held = range(self._chunks.first_position, self._chunks.head)
        bootstrap_at = self._transitions.bootstrap_at.rows
        slots, priorities = given_back(
            indices, td_errors, bootstrap_at, held, self._priorities.epsilon
        )
        self._priorities.update(slots, priorities)

    def drop_older(self, version: int) -> int:
        """Let no row be sampled any more in which an older policy acted.

        Their room is taken up until all before them have left: a ring has no holes.

        Returns:
            How many of them could be learnt from.
        """
        before = self.learnable_rows
        for chunk in self.origins.take_older(version):
            self._leave_out(chunk)
        return before - self.learnable_rows

    def references(self) -> References:
        """Return the content by reference; a copy, quick whatever the size."""
        first = self._chunks.first_position
        return References(
            first_position=first,
            chunks=tuple(chunk.ref for chunk in self._chunks),
            priorities=self._priorities.get(first, self._chunks.head - first),
            max_priority=self._priorities.highest_seen,
            dropped_rows=self.dropped_rows,
            blanks=self._chunks.blanks(),
            is_full=self.is_full,
        )

    def restore(self, references: References, batches: Iterable[FetchedBatch]) -> int:
        """Rebuild the content of an empty buffer from the log.

        Args:
            references: of the buffer that was.
            batches: what is read again, in any order (with frame stacking: each
                stream's in order); others than those referred to are ignored.

        Returns:
            How many rows could not be had again, or were not what they had been.
        """
        if self._chunks.head:
            raise ValueError(f"expected an empty buffer, found {self.rows} rows")
        self._chunks.head = references.first_position
        self._priorities.highest_seen = references.max_priority
        priorities = references.priorities
        wanted: dict[tuple[int, int], tuple[Chunk, Floats]] = {}
        for ref in references.chunks:
            chunk = self._reserve(ref)
            mine, priorities = np.split(priorities, [ref.num_rows])
            wanted[ref.partition, ref.offset] = chunk, mine
            self._priorities.put(chunk.position, np.full(ref.num_rows, np.nan))
        self._chunks.restore_blanks(references.blanks)
        found = read_again(wanted, batches, self._open, self._chunks.holds)
        for chunk, mine, arrays, _ in found:
            self._fill(chunk, arrays, mine)
        self.dropped_rows = references.dropped_rows
        self.is_full |= references.is_full
        return sum(int(np.isfinite(mine).sum()) for _, mine in wanted.values())

    def oldest_offsets(self) -> dict[int, int]:
        """Return, by partition, the first offset that the buffer still refers to."""
        return self._chunks.oldest_offsets()

    def _open(self, batch: TransitionBatch) -> BatchArrays:
        return open_batch(batch, self._env)

    def _reserve(self, ref: ChunkRef) -> Chunk:
        """Evict until a chunk fits, and append it, not filled yet."""
        block_rows = self._observations.block_rows(ref.num_steps, ref.num_envs)
        self._chunks.check(ref, block_rows)
        while not self._chunks.has_room(ref, block_rows):
            self._evict_oldest()
        return self._chunks.append(ref, block_rows)

    def _fill(self, chunk: Chunk, arrays: BatchArrays, priorities: Floats) -> None:
        """Write a chunk's rows [T*B] and make those samplable that can be."""
        ref = chunk.ref
        self._observations.put(chunk, arrays, self._chunks.preceding(chunk))
        steps, envs = np.divmod(np.arange(ref.num_rows), ref.num_envs)
        at = self._observations.at(chunk, steps, envs)
        self._transitions.put(chunk, arrays, at)
        self.origins.put(chunk, arrays)
        ahead = arrays.bootstrap_steps.reshape(-1)
        usable = arrays.valid.reshape(-1) & (ahead >= 1) & np.isfinite(priorities)
        finite = np.isfinite(arrays.returns) & np.isfinite(arrays.discounts)
        usable &= finite.reshape(-1)
        usable &= self._observations.finite(at) & self._observations.usable(at)
        self._priorities.put(chunk.position, np.where(usable, priorities, np.nan))
        chunk.filled = True
        chunk.valid_rows = int(np.count_nonzero(arrays.valid))
        self.rows += chunk.valid_rows
        refused = chunk.valid_rows - int(np.count_nonzero(usable))
        self.learnable_rows += chunk.valid_rows - refused
        self.refused_rows += refused
        self.dropped_rows += refused
        chunk.waiting = Waiting(
            self._transitions.slots(chunk)[usable],
            (ref.first_step + steps + ahead)[usable],
            envs[usable],
        )
        self._resolve(chunk, chunk)
        self._look_ahead(chunk)
        for other in self._chunks.waiting_in(ref.stream):
            self._resolve(other, chunk)

    def _look_ahead(self, chunk: Chunk) -> None:
        """Let rows of ``chunk`` bootstrap from what later chunks are there."""
        if chunk.waiting is not None:
            last_step = int(chunk.waiting.steps.max())
            for after in self._chunks.ahead_of(chunk, last_step):
                self._resolve(chunk, after)

    def _resolve(self, chunk: Chunk, source: Chunk) -> None:
        """Let rows of ``chunk`` bootstrap from observations of ``source``."""
        waiting, ref = chunk.waiting, source.ref
        if waiting is None or ref.num_envs != chunk.ref.num_envs:
            return
        steps = waiting.steps - ref.first_step
        there = (steps >= 0) & (steps <= ref.num_steps)
        at = self._observations.at(source, steps, waiting.envs)
        there &= self._observations.usable(at)
        if there.any():
            self._link(chunk, waiting.slots[there], at[there])
        chunk.waiting = waiting.without(there)
        self._chunks.note_waiting(chunk)

    def _link(self, chunk: Chunk, slots: Indices, bootstrap_at: Indices) -> None:
        rows = self._transitions
        rows.bootstrap_at.rows[slots] = bootstrap_at
        # An observation that is not finite has no value to bootstrap from.
        rows.discounts.rows[slots] *= self._observations.finite(bootstrap_at)
        self._priorities.let_in(slots)
        chunk.samplable_rows += len(slots)
        self.samplable_rows += len(slots)

    def _leave_out(self, chunk: Chunk) -> None:
        """Let no row of ``chunk`` be sampled any more, also after a restart."""
        num_waiting = len(chunk.waiting.slots) if chunk.waiting else 0
        if not chunk.samplable_rows + num_waiting:
            return
        slots = self._transitions.slots(chunk)
        self._priorities.put(chunk.position, np.full(len(slots), np.nan))
        self._priorities.leave_out(slots)
        self._transitions.bootstrap_at.rows[slots] = -1
        self.samplable_rows -= chunk.samplable_rows
        self.learnable_rows -= chunk.samplable_rows + num_waiting
        chunk.samplable_rows, chunk.waiting = 0, None
        self._chunks.note_waiting(chunk)

    def _evict_oldest(self) -> None:
        chunk = self._chunks.pop_oldest()
        if not chunk.filled:
            return
        self.is_full = True
        self.origins.forget(chunk)
        self._priorities.leave_out(self._transitions.slots(chunk))
        self.rows -= chunk.valid_rows
        self.samplable_rows -= chunk.samplable_rows
        num_waiting = len(chunk.waiting.slots) if chunk.waiting else 0
        self.learnable_rows -= chunk.samplable_rows + num_waiting
        self.dropped_rows += num_waiting
        for other in self._chunks.referring_to(chunk):
            self._unlink(other, chunk)

    def _unlink(self, chunk: Chunk, evicted: Chunk) -> None:
        """Let rows of ``chunk`` that bootstrap from what was evicted wait again."""
        rows = self._transitions
        slots = rows.slots(chunk)
        at = rows.bootstrap_at.rows[slots]
        inside, steps, envs = self._observations.locate(evicted, at)
        lost = Waiting(
            slots[inside], evicted.ref.first_step + steps[inside], envs[inside]
        )
        rows.bootstrap_at.rows[lost.slots] = -1
        self._priorities.leave_out(lost.slots)
        chunk.samplable_rows -= len(lost.slots)
        self.samplable_rows -= len(lost.slots)
        chunk.waiting = lost.joined(chunk.waiting)
        self._resolve(chunk, chunk)
        self._look_ahead(chunk)
