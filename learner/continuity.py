"""Chunks that come and go -> how far the sequences that begin with them reach."""

from collections.abc import Iterator

from learner.chains import NONE
from learner.chunks import Chunk, Chunks
from learner.sequence_store import SequenceStore


class Continuity:
    """Which chunk goes on from which, and which will never be gone on from.

    What a worker sends is in order but for what is late. So what is missing behind a
    chunk is not waited for once something later of its worker was heard of: another
    batch, blank or not, a newer incarnation (also from its Member), the stream's end,
    or that it was removed. A StreamEnd is in the last batch that a processor held: with
    one-step returns it holds none, so that a past's last sequences may wait for good.
    After a restart only that is known of which the buffer still has something.
    """

    def __init__(self, chunks: Chunks, store: SequenceStore, length: int) -> None:
        self._chunks, self._store, self._length = chunks, store, length
        self._chains, self._number = store.chains, store.rows.number
        # By worker: the incarnation and step up to which anything was heard of it, and
        # the chunk that ends there.
        self._newest: dict[str, tuple[int, int]] = {}
        self._tails: dict[str, Chunk] = {}

    def hear(self, worker: str, incarnation: int, step: int) -> Chunk | None:
        """Note how far a worker has come; return the chunk that waits in vain by it."""
        if (incarnation, step) <= self._newest.get(worker, (-1, -1)):
            return None
        self._newest[worker] = incarnation, step
        return self._tails.pop(worker, None)

    def join(self, chunk: Chunk, *, ends: bool) -> Chunk | None:
        """Take in a chunk whose rows are there; return as ``hear``.

        Args:
            chunk: which.
            ends: its stream ends with it.
        """
        ref = chunk.ref
        self._link(chunk)
        in_vain = self.hear(ref.worker, ref.incarnation, ref.end_step + ends)
        if self._newest[ref.worker] == (ref.incarnation, ref.end_step):
            self._tails[ref.worker] = chunk
        return in_vain

    def before(self, chunk: Chunk) -> Chunk | None:
        """Return the chunk whose sequences go on in this one."""
        before = self._chunks.preceding(chunk)
        if before is None:
            return None
        follows = self._chains.follows(self._number(before), self._number(chunk))
        return before if follows else None

    def leave(self, chunk: Chunk) -> None:
        """Let go of a chunk that was evicted."""
        if self._tails.get(chunk.ref.worker) is chunk:
            del self._tails[chunk.ref.worker]

    def cut(self, chunk: Chunk) -> None:
        """Let sequences go no further than a chunk's end."""
        self._chains.link(self._number(chunk), NONE)

    def reaching(self, chunk: Chunk) -> Iterator[tuple[Chunk, int]]:
        """Yield the chunk, and those before whose sequences reach it.

        With each comes how many rows its sequences have; 0: they wait for others.
        """
        ref, length = chunk.ref, self._length
        reach = self._chains.reach(self._number(chunk), length)
        is_over = self._newest[ref.worker] > (ref.incarnation, ref.first_step + reach)
        distance, begins_at = 0, chunk
        while distance < length:
            yield begins_at, reach if reach == length or is_over else 0
            before = self.before(begins_at)
            if before is None:
                return
            distance += before.ref.num_steps
            reach = min(reach + before.ref.num_steps, length)
            begins_at = before

    def _link(self, chunk: Chunk) -> None:
        """Let a chunk go on from the one before it, and the one after it from it."""
        before = self._chunks.preceding(chunk)
        after = self._chunks.ahead_of(chunk, chunk.ref.end_step)
        for first, second in [(before, chunk), *((chunk, one) for one in after)]:
            if first is None or not self._store.goes_on(first, second):
                continue
            self._chains.link(self._number(first), self._number(second))
            if self._tails.get(chunk.ref.worker) is first:
                del self._tails[chunk.ref.worker]
