"""Transition batches -> whole unrolls in the order in which they came, each once.

What on-policy algorithms learn from. A checkpoint holds by reference what was taken in
and not learnt from yet; so relative to a checkpoint nothing is lost or learnt twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np

from learner.batch_arrays import BatchArrays, open_batch
from learner.chunks import Blanks, References, reference
from learner.frame_stacks import Frames, FrameStacks, Past
from learner.origins import Origins
from learner.rereading import FetchedBatch, read_again
from learner.sample import Sequences
from learner.sum_tree import Floats, Indices
from learner.unroll_columns import Columns, unroll_rows, usable_at_random
from learner.unrolls import Unroll, side_by_side
from schemas.records import EnvDescription, TransitionBatch
from schemas.tensors import Array


class UnrollQueue:
    """The unrolls of one source that were not learnt from yet, oldest first.

    How many wait is bounded by who lets batches in: see QueueLimiter.

    An unroll in which no policy acted (its actions were random) is told as dropped by
    the next ``drop_older``: nobody can say how probable its actions were.

    Attributes:
        rows: valid rows that wait, by the records' own flags.
        samplable_rows: those of them that are learnt from.
        learnable_rows: the same: none waits for others.
        refused_rows: cumulative, valid rows that never can be learnt from: a number
            that is not finite, no bootstrap step, frames before them not known.
        dropped_rows: cumulative, the same; what is too old is counted elsewhere.
        is_full: never: nothing is evicted for others.
        origins: which policy acted in what was learnt from, when, and for whom.
    """

    is_full = False

    def __init__(
        self, env: EnvDescription, columns: Columns, *, frame_stack: int = 1
    ) -> None:
        """Make an empty queue.

        Args:
            env: what the batches' fields must be; single frames.
            columns: what they have to say of the policy that acted.
            frame_stack: how many frames an observation of a sample has.
        """
        self._env, self._columns = env, columns
        self._stacks = FrameStacks(frame_stack)
        self._unrolls: deque[Unroll] = deque()
        self._serial = 0
        self._at_random = 0
        self.origins = Origins()
        self.rows = self.samplable_rows = 0
        self.refused_rows = self.dropped_rows = 0

    @property
    def learnable_rows(self) -> int:
        """Rows that can be learnt from."""
        return self.samplable_rows

    def insert(self, batch: TransitionBatch, partition: int, offset: int) -> int:
        """Take in a batch that was read at an address; return its valid rows.

        Raises:
            BatchMismatch: it is not of this environment, or does not say what it has to
                of the policy that acted; nothing is changed.
            SchemaError: a tensor cannot be opened; nothing is changed.
            ValueError: it is in the queue already.
        """
        ref = reference(batch, partition, offset)
        if any(unroll.past.ref == ref for unroll in self._unrolls):
            raise ValueError(f"expected a batch that is not in the queue, found {ref}")
        arrays = self._open(batch)
        past = Past(self._next_serial(), ref, self._stacks.is_after_blank(ref))
        if not np.isfinite(arrays.policy_version):
            frames, finite = self._put(past, arrays, ends=batch.end_of_stream)
            usable = usable_at_random(arrays, frames.known & finite)
            self._at_random += self._refuse(arrays.valid, usable)
        else:
            unroll = self._make(past, arrays, ends=batch.end_of_stream)
            self._refuse(arrays.valid, unroll.rows.usable)
            self._append(unroll)
        return int(np.count_nonzero(arrays.valid))

    def pass_over(self, batch: TransitionBatch) -> None:
        """Note a batch without a valid row: it gets no room."""
        end_step = batch.first_step + batch.num_steps
        self._stacks.note_blank(batch.worker, batch.incarnation, end_step)

    def over_before(self, worker: str, incarnation: int) -> None:
        """Note that no stream of a worker before an incarnation goes on."""
        self._stacks.over_before(worker, incarnation)

    def sample(
        self, batch_size: int, beta: float, rng: np.random.Generator
    ) -> Sequences:
        """Take the oldest unrolls, until they have ``batch_size`` rows to learn from.

        Neither ``beta`` nor ``rng`` is of use here.

        Raises:
            ValueError: there is none.
        """
        if not self._unrolls:
            raise ValueError("expected an unroll to learn from, found none")
        taken: list[Unroll] = []
        while self._unrolls and sum(u.num_usable for u in taken) < batch_size:
            unroll = self._unrolls.popleft()
            self._count(unroll, -1)
            self.origins.learnt(
                unroll.past.ref.worker,
                unroll.version,
                unroll.acted_at_s,
                unroll.num_usable,
            )
            taken.append(unroll)
        return side_by_side(taken, self._stacks.stack)

    def update_priorities(self, indices: Indices, td_errors: Array) -> None:
        """Do nothing: what was given out does not come again."""

    def drop_older(self, version: int) -> int:
        """Drop unrolls of policies before a version, wherever in the queue they are.

        Returns:
            How many of their rows could be learnt from; those of random actions since
            the last call among them.
        """
        dropped, self._at_random = self._at_random, 0
        old = [unroll for unroll in self._unrolls if unroll.version < version]
        if old:
            self._unrolls = deque(u for u in self._unrolls if u.version >= version)
        for unroll in old:
            self._count(unroll, -1)
            dropped += unroll.num_usable
        return dropped

    def references(self) -> References:
        """Return by reference what waits, and what its frames and later ones' need.

        The priorities of rows that are to be learnt from are 1, those of others NaN.
        """
        waiting = {unroll.past.serial: unroll for unroll in self._unrolls}
        pasts = {past.serial: past for past in self._stacks.pasts()}
        for unroll in self._unrolls:
            needed = (*unroll.frames.pasts, unroll.past)
            pasts |= {past.serial: past for past in needed}
        parts, starts, position = [np.empty(0)], [], 0
        ordered = [pasts[serial] for serial in sorted(pasts)]
        for past in ordered:
            starts.append(position)
            position += past.ref.num_rows
            unroll = waiting.get(past.serial)  # type: ignore[assignment]
            nothing = np.zeros(past.ref.num_rows, np.bool_)
            usable = unroll.rows.usable.reshape(-1) if unroll else nothing
            parts.append(np.where(usable, 1.0, np.nan))
        after_blank = zip(starts, ordered, strict=True)
        return References(
            first_position=0,
            chunks=tuple(past.ref for past in ordered),
            priorities=np.concatenate(parts),
            max_priority=0.0,
            dropped_rows=self.dropped_rows,
            blanks=Blanks(
                frozenset(start for start, past in after_blank if past.is_after_blank),
                dict(self._stacks.blanks),
            ),
        )

    def restore(self, references: References, batches: Iterable[FetchedBatch]) -> int:
        """Rebuild the content of an empty queue from the log.

        Args:
            references: of the queue that was.
            batches: what is read again, in any order (with frame stacking: each
                stream's in order); others than those referred to are ignored.

        Returns:
            How many rows could not be had again, or were not what they had been.
        """
        if self._serial:
            raise ValueError(f"expected an empty queue, found {self.rows} rows")
        wanted = self._wanted(references)
        lost = sum(int(np.isfinite(mine).sum()) for _, mine in wanted.values())
        for past, mine, arrays, batch in read_again(wanted, batches, self._open):
            was_usable = np.isfinite(mine).reshape(arrays.valid.shape)
            if not was_usable.any():
                self._put(past, arrays, ends=batch.end_of_stream)
                continue
            unroll = self._make(past, arrays, ends=batch.end_of_stream)
            unroll = unroll.restricted(was_usable)
            self._append(unroll)
            lost -= unroll.num_usable
        in_order = sorted(self._unrolls, key=lambda unroll: unroll.past.serial)
        self._unrolls = deque(in_order)
        self._stacks.blanks = dict(references.blanks.newest)
        self.dropped_rows = references.dropped_rows
        return lost

    def oldest_offsets(self) -> dict[int, int]:
        """Return, by partition, the first offset that is still referred to."""
        oldest: dict[int, int] = {}
        for ref in self.references().chunks:
            at = oldest.get(ref.partition, ref.offset)
            oldest[ref.partition] = min(ref.offset, at)
        return oldest

    def _wanted(
        self, references: References
    ) -> dict[tuple[int, int], tuple[Past, Floats]]:
        """Return, by address, what is to be read again, and the priorities it had."""
        wanted = {}
        position = 0
        for ref in references.chunks:
            after_blank = position in references.blanks.before
            past = Past(self._next_serial(), ref, after_blank)
            mine = references.priorities[position : position + ref.num_rows]
            wanted[ref.partition, ref.offset] = past, mine
            position += ref.num_rows
        return wanted

    def _open(self, batch: TransitionBatch) -> BatchArrays:
        arrays = open_batch(batch, self._env, with_behaviour=True)
        if np.isfinite(arrays.policy_version):
            self._columns.check(arrays)
        return arrays

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _put(
        self, past: Past, arrays: BatchArrays, *, ends: bool
    ) -> tuple[Frames, Array]:
        """Return an unroll's frames, and which observations [T+1, B] are finite."""
        observations, finite = _cleaned(arrays.observations)
        frames = self._stacks.put(past, observations, arrays.valid, ends=ends)
        return frames, finite

    def _make(self, past: Past, arrays: BatchArrays, *, ends: bool) -> Unroll:
        frames, finite = self._put(past, arrays, ends=ends)
        rows = unroll_rows(arrays, self._columns, frames.known & finite)
        return Unroll(
            past=past,
            frames=frames,
            rows=rows,
            num_valid=int(np.count_nonzero(arrays.valid)),
            num_usable=int(np.count_nonzero(rows.usable)),
            version=arrays.policy_version,
            acted_at_s=arrays.acted_at_s,
        )

    def _append(self, unroll: Unroll) -> None:
        if unroll.num_usable:
            self._unrolls.append(unroll)
            self._count(unroll, 1)

    def _count(self, unroll: Unroll, sign: int) -> None:
        self.rows += sign * unroll.num_valid
        self.samplable_rows += sign * unroll.num_usable

    def _refuse(self, valid: Array, usable: Array) -> int:
        """Count the valid rows that are not learnt from; return the others."""
        num_usable = int(np.count_nonzero(usable))
        refused = int(np.count_nonzero(valid)) - num_usable
        self.refused_rows += refused
        self.dropped_rows += refused
        return num_usable


def _cleaned(observations: Mapping[str, Array]) -> tuple[dict[str, Array], Array]:
    """Put zeros for what is not finite; return also where all fields were, [T+1, B]."""
    leading = next(iter(observations.values())).shape[:2]
    all_finite = np.ones(leading, np.bool_)
    cleaned = {}
    for name, values in observations.items():
        cleaned[name] = values
        if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
            all_finite &= finite.reshape(*leading, -1).all(-1)
            cleaned[name] = np.where(finite, values, values.dtype.type(0))
    return cleaned, all_finite
