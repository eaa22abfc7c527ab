"""Transition batches -> prioritised samples of sequences.

A sequence is L consecutive rows of one environment that begin at a batch's first row,
where the recurrent state is recorded; it goes on into the batches that follow. Batches
of T < L rows so give overlapping sequences, as in R2D2 (L = 2T: by half).
"""

from collections.abc import Iterable

import numpy as np

from learner.batch_arrays import BatchArrays, open_batch
from learner.chunks import Chunk, ChunkRef, Chunks, References, reference
from learner.continuity import Continuity
from learner.origins import Origins
from learner.priorities import Priorities
from learner.rereading import FetchedBatch, read_again
from learner.sample import Sequences
from learner.sequence_store import SequenceStore
from learner.sum_tree import Floats, Indices
from schemas.experiment import ReplaySpec
from schemas.records import EnvDescription, SpaceField, TransitionBatch
from schemas.tensors import Array


class SequenceBuffer:
    """A ring of rows that evicts whole batches, oldest first.

    An item is one environment of a batch, and the sequence that begins there; its index
    is the position of its first row. It can be drawn once its L rows are there, or what
    is missing will not come: something later of the worker is there (another batch, a
    newer incarnation, the stream's end), or the worker is gone. Then it is as short as
    it is, and is only drawn if that leaves a row to learn from. A batch that comes late
    makes the sequences before it longer.

    New items have the largest priority that was ever found; what processors think of
    rows is in another scale where values are rescaled.

    Attributes:
        rows: valid rows held, by the records' own flags.
        samplable_rows: rows to learn from that are in the first batch of a sequence
            that can be drawn now.
        learnable_rows: those, and those whose sequence waits for others.
        is_full: rows were evicted for others: it never holds many more than now.
        refused_rows: cumulative, valid rows that never can be learnt from (not finite,
            no bootstrap step, beyond L, frames or state before them not known).
        dropped_rows: cumulative, those, and rows that left while they waited.
        origins: which policy acted in a row, when, and for which worker.
    """

    def __init__(
        self,
        env: EnvDescription,
        replay: ReplaySpec,
        *,
        unroll_length: int,
        sequence_length: int,
        burn_in: int = 0,
        states: tuple[SpaceField, ...] = (),
        frame_stack: int = 1,
    ) -> None:
        """Make an empty buffer.

        Args:
            env: what the batches' fields must be; single frames.
            replay: capacity in rows, invalid ones included, and priorities.
            unroll_length: the usual T, see ReplayBuffer.
            sequence_length: L, warming up included.
            burn_in: rows at the beginning that only warm up.
            states: the policy's recurrent states, of one environment.
            frame_stack: how many frames an observation of a sample has.
        """
        self._env = env
        self._length = sequence_length
        self._store = SequenceStore(
            env,
            replay.capacity,
            unroll_length=unroll_length,
            sequence_length=sequence_length,
            burn_in=burn_in,
            states=states,
            frame_stack=frame_stack,
        )
        self._rows = self._store.rows
        self._priorities = Priorities(replay)
        self._chunks = Chunks(replay.capacity, self._store.observations.size)
        self._continuity = Continuity(self._chunks, self._store, sequence_length)
        self.origins = Origins(self._rows.chunks)
        self.rows = self.samplable_rows = self.learnable_rows = 0
        self.refused_rows = self.dropped_rows = 0
        self.is_full = False

    def insert(self, batch: TransitionBatch, partition: int, offset: int) -> int:
        """Take in a batch that was read at an address; return its valid rows.

        Raises:
            BatchMismatch: it is not of this environment, or not of this policy's
                states; nothing is changed.
            SchemaError: a tensor cannot be opened; nothing is changed.
            ValueError: it does not fit, or is in the buffer already.
        """
        arrays = self._open(batch)
        chunk = self._reserve(reference(batch, partition, offset))
        priorities = np.full(batch.num_envs, self._priorities.default)
        self._fill(chunk, arrays, priorities, ends=batch.end_of_stream)
        return chunk.valid_rows

    def pass_over(self, batch: TransitionBatch) -> None:
        """Note a batch without a valid row: it gets no room, and ends sequences."""
        end_step = batch.first_step + batch.num_steps
        self._chunks.note_blank(batch.worker, batch.incarnation, end_step)
        heard_step = end_step + batch.end_of_stream
        self._judge_from(
            self._continuity.hear(batch.worker, batch.incarnation, heard_step)
        )

    def over_before(self, worker: str, incarnation: int) -> None:
        """Note that no stream of a worker before an incarnation goes on.

        What of it is still under way makes sequences longer, as what fills a hole.
        """
        self._judge_from(self._continuity.hear(worker, incarnation, -1))

    def sample(
        self, batch_size: int, beta: float, rng: np.random.Generator
    ) -> Sequences:
        """Draw sequences of about ``batch_size`` rows, at least one, by priority.

        Raises:
            ValueError: none can be drawn.
        """
        count = max(1, batch_size // self._length)
        drawn = self._priorities.draw(count, rng)
        # (N P)^-beta / (N P_least)^-beta: N cancels.
        weights = (drawn.probabilities / drawn.least) ** -beta
        first = self._chunks.first_position
        items = first + (drawn.slots - first) % self._rows.capacity
        sequences, slots = self._store.read(items, weights.astype(np.float32))
        self.origins.draw(slots)
        return sequences

    def update_priorities(self, indices: Indices, td_errors: Array) -> None:
        """Set the priorities of drawn sequences from what their errors amount to.

        Sequences that were evicted since, and errors that are not finite, are ignored.
        """
        priorities = self._priorities.from_errors(td_errors)
        slots = indices % self._rows.capacity
        kept = (indices >= self._chunks.first_position) & (indices < self._chunks.head)
        kept &= np.isfinite(priorities) & self._rows.drawable.rows[slots]
        self._priorities.update(slots[kept], priorities[kept])

    def drop_older(self, version: int) -> int:
        """Let no sequence be drawn any more in whose rows an older policy acted.

        Their room is taken up until all before them have left: a ring has no holes.

        Returns:
            How many of their rows could be learnt from.
        """
        before = self.learnable_rows
        for chunk in self.origins.take_older(version):
            self._leave_out(chunk)
        return before - self.learnable_rows

    def references(self) -> References:
        """Return the content by reference; its priorities are of items, [sum of B]."""
        parts = [
            self._priorities.get(chunk.position, chunk.ref.num_envs)
            for chunk in self._chunks
        ]
        return References(
            first_position=self._chunks.first_position,
            chunks=tuple(chunk.ref for chunk in self._chunks),
            priorities=np.concatenate(parts) if parts else np.empty(0),
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
        wanted = self._reserve_all(references)
        found = read_again(wanted, batches, self._open, self._chunks.holds)
        for chunk, mine, arrays, batch in found:
            self._fill(chunk, arrays, mine, ends=batch.end_of_stream)
        self.dropped_rows = references.dropped_rows
        self.is_full |= references.is_full
        return sum(
            int(np.isfinite(mine).sum()) * chunk.ref.num_steps
            for chunk, mine in wanted.values()
        )

    def _reserve_all(
        self, references: References
    ) -> dict[tuple[int, int], tuple[Chunk, Floats]]:
        """Return the chunks to fill, and their priorities, by address."""
        wanted: dict[tuple[int, int], tuple[Chunk, Floats]] = {}
        priorities = references.priorities
        for ref in references.chunks:
            chunk = self._reserve(ref)
            mine, priorities = np.split(priorities, [ref.num_envs])
            wanted[ref.partition, ref.offset] = chunk, mine
            self._priorities.put(chunk.position, np.full(ref.num_envs, np.nan))
            self._continuity.hear(ref.worker, ref.incarnation, ref.end_step)
        self._chunks.restore_blanks(references.blanks)
        for worker, (incarnation, step) in references.blanks.newest.items():
            self._continuity.hear(worker, incarnation, step)
        return wanted

    def oldest_offsets(self) -> dict[int, int]:
        """Return, by partition, the first offset that the buffer still refers to."""
        return self._chunks.oldest_offsets()

    def _open(self, batch: TransitionBatch) -> BatchArrays:
        arrays = open_batch(batch, self._env, with_behaviour=True)
        self._store.states.check(arrays.states, batch.num_envs)
        return arrays

    def _reserve(self, ref: ChunkRef) -> Chunk:
        """Evict until a chunk fits, and append it, not filled yet."""
        block_rows = self._store.observations.block_rows(ref.num_steps, ref.num_envs)
        self._chunks.check(ref, block_rows)
        while not self._chunks.has_room(ref, block_rows):
            self._evict_oldest()
        return self._chunks.append(ref, block_rows)

    def _fill(
        self, chunk: Chunk, arrays: BatchArrays, priorities: Floats, *, ends: bool
    ) -> None:
        """Write a chunk's rows, and let in the sequences that are whole by it."""
        self._store.put(chunk, arrays, self._chunks.preceding(chunk))
        self.origins.put(chunk, arrays)  # which numbers it
        begins = self._store.begin(chunk, arrays)
        begins &= np.isfinite(priorities)  # NaN: it was of no use before either
        self._priorities.put(chunk.position, np.where(begins, priorities, np.nan))
        chunk.filled = True
        self._count(chunk, arrays)
        self._judge_from(self._continuity.join(chunk, ends=ends))
        self._judge_from(chunk)

    def _count(self, chunk: Chunk, arrays: BatchArrays) -> None:
        chunk.valid_rows = int(np.count_nonzero(arrays.valid))
        learnable = int(self._learnable(chunk)[self._begins(chunk)].sum())
        refused = chunk.valid_rows - learnable
        self.rows += chunk.valid_rows
        self.learnable_rows += learnable
        self.refused_rows += refused
        self.dropped_rows += refused

    def _judge_from(self, chunk: Chunk | None) -> None:
        """Judge the sequences that begin with a chunk, or before it and reach it."""
        if chunk is not None:
            for begins_at, steps in self._continuity.reaching(chunk):
                self._judge(begins_at, steps)

    def _judge(self, chunk: Chunk, steps: int) -> None:
        """Let the sequences of a chunk be drawn that have a row to learn from."""
        rows = self._rows
        slots = rows.first_slots(chunk)
        drawable: Array = np.zeros(len(slots), np.bool_)
        if steps:
            items = chunk.position + np.arange(len(slots))
            found = self._store.have_targets(items)
            drawable = found & self._begins(chunk)
        was_drawable = rows.drawable.rows[slots]
        self._priorities.leave_out(slots[was_drawable & ~drawable])
        self._priorities.let_in(slots[drawable & ~was_drawable])
        rows.drawable.rows[slots] = drawable
        samplable = int(self._learnable(chunk)[drawable].sum())
        self.samplable_rows += samplable - chunk.samplable_rows
        chunk.samplable_rows = samplable

    def _leave_out(self, chunk: Chunk) -> None:
        """Let sequences neither begin with a chunk nor go on in it."""
        begins = self._begins(chunk)
        if begins.any():
            self.learnable_rows -= int(self._learnable(chunk)[begins].sum())
            self._priorities.put(chunk.position, np.full(len(begins), np.nan))
            self._judge(chunk, 0)
        if (before := self._continuity.before(chunk)) is not None:
            self._continuity.cut(before)
            self._judge_from(before)

    def _evict_oldest(self) -> None:
        oldest = next(iter(self._chunks))
        before = self._continuity.before(oldest) if oldest.filled else None
        chunk = self._chunks.pop_oldest()
        if not chunk.filled:
            return
        self.is_full = True
        self._forget(chunk)
        self._continuity.leave(chunk)
        if before is not None:  # a hole that was filled late: there is one again
            self._continuity.cut(before)
            self._judge_from(before)

    def _forget(self, chunk: Chunk) -> None:
        slots = self._rows.first_slots(chunk)
        learnable = int(self._learnable(chunk)[self._begins(chunk)].sum())
        self._priorities.leave_out(slots)
        self.rows -= chunk.valid_rows
        self.samplable_rows -= chunk.samplable_rows
        self.learnable_rows -= learnable
        self.dropped_rows += learnable - chunk.samplable_rows
        self.origins.forget(chunk)

    def _begins(self, chunk: Chunk) -> Array:
        """Return which environments' sequences may ever be drawn, [B]."""
        priorities = self._priorities.get(chunk.position, chunk.ref.num_envs)
        begins: Array = np.isfinite(priorities)
        return begins

    def _learnable(self, chunk: Chunk) -> Indices:
        """Count the rows of a chunk's own, by env [B], that sequences learn from."""
        return self._rows.learnable(chunk, self._length)
