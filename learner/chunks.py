"""Which batches the buffer holds: in slot order, by reference, and by stream."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from learner.sum_tree import Floats, Indices
from schemas.records import TransitionBatch
from schemas.tensors import Array

Stream = tuple[str, int]
"""(worker, incarnation)."""


class TooLarge(ValueError):
    """A batch that has no room in the buffer, however empty that is."""


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """Where a contiguous range of slots came from: the rows of one TransitionBatch.

    Attributes:
        partition: of the replay topic.
        offset: of the batch in it.
        worker: the batch's identity, as are the next five.
        incarnation: of the worker.
        sequence: within the incarnation.
        first_step: the vector step of row 0.
        num_steps: T.
        num_envs: B; the chunk fills T * B slots, time-major.
    """

    partition: int
    offset: int
    worker: str
    incarnation: int
    sequence: int
    first_step: int
    num_steps: int
    num_envs: int

    @property
    def num_rows(self) -> int:
        """T * B, whether valid or not."""
        return self.num_steps * self.num_envs

    @property
    def end_step(self) -> int:
        """The step of the last observation, which is the next chunk's first."""
        return self.first_step + self.num_steps

    @property
    def stream(self) -> Stream:
        """The stream it is part of."""
        return self.worker, self.incarnation


def reference(batch: TransitionBatch, partition: int, offset: int) -> ChunkRef:
    """Return the reference to a batch that was read at an address of the log."""
    return ChunkRef(
        partition, offset, batch.worker, batch.incarnation, batch.sequence,
        batch.first_step, batch.num_steps, batch.num_envs,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blanks:
    """Where batches without a valid row were, which are not kept.

    Attributes:
        before: positions of the chunks that one was directly before.
        newest: by worker, the incarnation and end step of its newest one, as long as
            nothing has followed it.
    """

    before: frozenset[int] = frozenset()
    newest: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class References:
    """A buffer's content by reference: all that a checkpoint keeps of it.

    Attributes:
        first_position: the position (a slot's serial number) of the oldest row.
        chunks: oldest first; their rows fill consecutive positions.
        priorities: [rows] float64, |TD error| + eps before alpha; NaN: no row that is
            ever sampled.
        max_priority: the largest priority ever seen; 0: none yet.
        dropped_rows: the buffer's counter.
        blanks: what was between chunks; only noted where frames are stacked.
        is_full: rows were evicted for others.
    """

    first_position: int
    chunks: Sequence[ChunkRef]
    priorities: Floats
    max_priority: float
    dropped_rows: int = 0
    blanks: Blanks = Blanks()
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows whose bootstrap observation is not there: their slot, its step and env."""

    slots: Indices
    steps: Indices
    envs: Indices

    def joined(self, other: "Waiting | None") -> "Waiting":
        """Return these rows and those."""
        if other is None:
            return self
        return Waiting(
            np.concatenate([self.slots, other.slots]),
            np.concatenate([self.steps, other.steps]),
            np.concatenate([self.envs, other.envs]),
        )

    def without(self, there: Array) -> "Waiting | None":
        """Return the rows [N] that still wait; None: none of them does."""
        left = ~there
        if not left.any():
            return None
        return Waiting(self.slots[left], self.steps[left], self.envs[left])


@dataclass(eq=False, slots=True)
class Chunk:
    """A batch in the buffer.

    Attributes:
        ref: what it is.
        position: of its first row.
        block: the position of its first observation.
        filled: its rows are there; False only while, or after, restoring in vain.
        valid_rows: those that the record calls valid.
        samplable_rows: those that can be sampled now.
        waiting: those that cannot yet.
        is_after_blank: the batch before it had no valid row.
    """

    ref: ChunkRef
    position: int
    block: int
    filled: bool = False
    valid_rows: int = 0
    samplable_rows: int = 0
    waiting: Waiting | None = None
    is_after_blank: bool = False


@dataclass(eq=False, slots=True)
class _StreamChunks:
    by_first_step: dict[int, Chunk] = field(default_factory=dict)
    by_end_step: dict[int, Chunk] = field(default_factory=dict)
    waiting: set[Chunk] = field(default_factory=set)
    last_step: int = -1
    in_order: bool = True


class Chunks:
    """The chunks of a buffer, oldest first, and by stream.

    Attributes:
        head: the position that the next row gets.
    """

    def __init__(self, max_rows: int, max_observations: int) -> None:
        self._max_rows = max_rows
        self._max_observations = max_observations
        self.head = 0
        self._block_head = 0
        self._in_order: deque[Chunk] = deque()
        self._streams: dict[Stream, _StreamChunks] = {}
        self._blanks: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._in_order)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._in_order)

    @property
    def first_position(self) -> int:
        """The position of the oldest row."""
        return self._in_order[0].position if self._in_order else self.head

    def holds(self, chunk: Chunk) -> bool:
        """Whether a chunk was not evicted."""
        return chunk.position >= self.first_position

    def oldest_offsets(self) -> dict[int, int]:
        """Return the smallest offset of each partition."""
        oldest: dict[int, int] = {}
        for chunk in self._in_order:
            partition, offset = chunk.ref.partition, chunk.ref.offset
            oldest[partition] = min(offset, oldest.get(partition, offset))
        return oldest

    def check(self, ref: ChunkRef, num_observations: int) -> None:
        """Raise ValueError unless a chunk can ever be appended, and is not there."""
        if ref.num_rows > self._max_rows or num_observations > self._max_observations:
            raise TooLarge(
                "learner.replay.capacity: expected room for a batch of "
                f"{ref.num_steps} x {ref.num_envs} rows, found {self._max_rows} "
                f"({self._max_observations} observations)"
            )
        stream = self._streams.get(ref.stream)
        if stream is not None and (
            ref.first_step in stream.by_first_step or ref.end_step in stream.by_end_step
        ):
            raise ValueError(f"expected a batch that is not in the buffer, found {ref}")

    def has_room(self, ref: ChunkRef, num_observations: int) -> bool:
        """Whether a chunk can be appended without evicting the oldest."""
        if not self._in_order:
            return True
        rows = self.head + ref.num_rows - self.first_position
        observations = self._block_head + num_observations - self._in_order[0].block
        return rows <= self._max_rows and observations <= self._max_observations

    def append(self, ref: ChunkRef, num_observations: int) -> Chunk:
        """Append the newest chunk, not filled yet, and return it."""
        chunk = Chunk(ref, self.head, self._block_head)
        if self._blanks.get(ref.worker) == (ref.incarnation, ref.first_step):
            chunk.is_after_blank = True
            del self._blanks[ref.worker]
        self.head += ref.num_rows
        self._block_head += num_observations
        stream = self._streams.setdefault(ref.stream, _StreamChunks())
        stream.by_first_step[ref.first_step] = stream.by_end_step[ref.end_step] = chunk
        # A hole that was filled later: its rows may outlive what they refer to.
        stream.in_order &= ref.first_step > stream.last_step
        stream.last_step = max(stream.last_step, ref.first_step)
        self._in_order.append(chunk)
        return chunk

    def note_blank(self, worker: str, incarnation: int, end_step: int) -> None:
        """Remember a batch without a valid row; of each worker the newest."""
        self._blanks[worker] = incarnation, end_step

    def blanks(self) -> Blanks:
        """Return a copy of what is remembered of such batches."""
        before = (chunk.position for chunk in self if chunk.is_after_blank)
        return Blanks(frozenset(before), dict(self._blanks))

    def restore_blanks(self, blanks: Blanks) -> None:
        """Remember what ``blanks`` returned of the same chunks."""
        for chunk in self:
            chunk.is_after_blank = chunk.position in blanks.before
        self._blanks = dict(blanks.newest)

    def pop_oldest(self) -> Chunk:
        """Remove the oldest chunk and return it."""
        chunk = self._in_order.popleft()
        stream = self._streams[chunk.ref.stream]
        del stream.by_first_step[chunk.ref.first_step]
        del stream.by_end_step[chunk.ref.end_step]
        stream.waiting.discard(chunk)
        if not stream.by_first_step:
            del self._streams[chunk.ref.stream]
        return chunk

    def note_waiting(self, chunk: Chunk) -> None:
        """Remember, or forget, that rows of ``chunk`` wait for later chunks."""
        waiting = self._streams[chunk.ref.stream].waiting
        if chunk.waiting is None:
            waiting.discard(chunk)
        else:
            waiting.add(chunk)

    def waiting_in(self, stream: Stream) -> list[Chunk]:
        """Return the chunks of a stream that wait, in slot order."""
        return sorted(self._streams[stream].waiting, key=lambda chunk: chunk.position)

    def ahead_of(self, chunk: Chunk, last_step: int) -> list[Chunk]:
        """Return the chunks of its stream that begin from its end to ``last_step``."""
        by_first_step = self._streams[chunk.ref.stream].by_first_step
        steps: Iterable[int] = range(chunk.ref.end_step, last_step + 1)
        if len(by_first_step) < last_step - chunk.ref.end_step:
            steps = [s for s in by_first_step if chunk.ref.end_step <= s <= last_step]
        found = [by_first_step[step] for step in steps if step in by_first_step]
        return [after for after in found if after.filled]

    def preceding(self, chunk: Chunk) -> Chunk | None:
        """Return the chunk that ``chunk`` continues, where it is there."""
        by_end_step = self._streams[chunk.ref.stream].by_end_step
        before = by_end_step.get(chunk.ref.first_step)
        return before if before is not None and before.filled else None

    def referring_to(self, evicted: Chunk) -> list[Chunk]:
        """Return the chunks left whose rows may bootstrap from an evicted one."""
        stream = self._streams.get(evicted.ref.stream)
        if stream is None or stream.in_order:
            return []
        before = evicted.ref.first_step
        chunks = stream.by_first_step.values()
        return [c for c in chunks if c.filled and c.ref.first_step < before]
