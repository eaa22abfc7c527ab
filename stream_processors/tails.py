"""Records of one partition, in order -> batches, and what is done with.

An unroll waits here, not acknowledged, until the rows after it complete the horizon of
its last row, or until something in the log closes its segment. What is emitted for an
unroll depends on the records after it alone: wherever in the log reading begins again,
the result is the same. (An unroll that a person has put back, long after its stream
went on or ended, stands alone: it waits for nothing.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from schemas.records import SourceRef, StreamEnd, TransitionBatch, Unroll
from schemas.tensors import Tensor, pack
from stream_processors.nstep import n_step
from stream_processors.priorities import td_priorities
from stream_processors.rows import Rows, join, open_rows


@dataclass(frozen=True, slots=True)
class ReturnOptions:
    """How returns are computed; see `schemas.experiment.ProcessorSpec`."""

    n: int
    gamma: float
    reward_scale: float = 1.0
    priority_epsilon: float = 1e-6


@dataclass(frozen=True, slots=True)
class Emit:
    """Send the batch; when it is delivered, the record at ``offset`` is done."""

    offset: int
    batch: TransitionBatch
    num_valid: int


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing comes of the record at ``offset``: acknowledge it."""

    offset: int


Action = Emit | Done


@dataclass(slots=True)
class TailCounts:
    """What was met in the log.

    Attributes:
        unrolls: unrolls read.
        late_records: unrolls behind a newer incarnation or their own stream, or put
            back.
        holes: places where a stream does not go on as expected.
        repeated_records: unrolls that their segment already had.
    """

    unrolls: int = 0
    late_records: int = 0
    holes: int = 0
    repeated_records: int = 0


@dataclass(frozen=True, slots=True)
class _Held:
    offset: int
    unroll: Unroll
    rows: Rows


@dataclass(slots=True)
class _Segment:
    """Consecutive unrolls of one stream, without holes."""

    first_sequence: int
    next_sequence: int
    next_step: int
    num_envs: int
    closed: bool = False
    held: deque[_Held] = field(default_factory=deque)
    held_rows: int = 0

    def has(self, unroll: Unroll) -> bool:
        return self.first_sequence <= unroll.sequence < self.next_sequence

    def goes_on_with(self, unroll: Unroll) -> bool:
        return (unroll.sequence, unroll.first_step, unroll.num_envs) == (
            self.next_sequence,
            self.next_step,
            self.num_envs,
        )

    def add(self, held: _Held) -> None:
        self.held.append(held)
        self.held_rows += len(held.rows)
        self.next_sequence = held.unroll.sequence + 1
        self.next_step = held.unroll.first_step + held.unroll.num_steps


class Tails:
    """What is not emitted yet, of one partition."""

    def __init__(
        self,
        topic: str,
        partition: int,
        options: ReturnOptions,
        counts: TailCounts | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._options = options
        self._counts = counts or TailCounts()
        # By worker, then incarnation. Closed ones stay, to know repetitions by, until
        # a newer incarnation of the worker is there.
        self._streams: dict[str, dict[int, _Segment]] = {}

    def feed(
        self, offset: int, record: Unroll | StreamEnd, *, alone: bool = False
    ) -> list[Action]:
        """Take the next record of the partition; return what follows from it.

        Args:
            offset: of the record.
            record: what it holds.
            alone: it was put back: whether its batch was ever delivered is not known
                here, so nothing is taken for a repetition.

        Raises:
            SchemaError: the record cannot be used; nothing has changed.
        """
        if isinstance(record, StreamEnd):
            ended = self._close_up_to(record.worker, record.incarnation, ends=True)
            return [*ended, Done(offset)]
        held = _Held(offset, record, open_rows(record))
        self._counts.unrolls += 1
        if alone:
            return self._take_alone(held)
        # Closed by a newer incarnation, whatever it sends.
        actions = self._forget_before(record.worker, record.incarnation)
        actions += self._take(held)
        return actions

    def _take_alone(self, held: _Held) -> list[Action]:
        self._counts.late_records += 1
        actions: list[Action] = [self._emit([held], closed=True)]
        if held.unroll.end_of_stream:
            actions += self._close_up_to(held.unroll.worker, held.unroll.incarnation)
        return actions

    def _take(self, held: _Held) -> list[Action]:
        unroll = held.unroll
        streams = self._streams.setdefault(unroll.worker, {})
        segment = streams.get(unroll.incarnation)
        if segment is not None and segment.has(unroll):
            self._counts.repeated_records += 1
            return [Done(held.offset)]
        if any(other > unroll.incarnation for other in streams):
            self._counts.late_records += 1
        if segment is None or segment.closed:
            return self._open(streams, held)
        if unroll.sequence < segment.first_sequence:
            # Behind its own stream: it stands alone, and the stream goes on.
            self._counts.late_records += 1
            return [self._emit([held], closed=True)]
        if segment.goes_on_with(unroll):
            return self._add(segment, held)
        self._counts.holes += 1
        return [*self._close(segment), *self._open(streams, held)]

    def _open(self, streams: dict[int, _Segment], held: _Held) -> list[Action]:
        unroll = held.unroll
        segment = streams[unroll.incarnation] = _Segment(
            unroll.sequence, unroll.sequence, unroll.first_step, unroll.num_envs
        )
        return self._add(segment, held)

    def _add(self, segment: _Segment, held: _Held) -> list[Action]:
        segment.add(held)
        if held.unroll.end_of_stream:
            return list(self._close(segment))
        return list(self._ripe(segment))

    def _ripe(self, segment: _Segment) -> Iterator[Action]:
        """Emit what has the n - 1 rows after its last one."""
        while segment.held:
            following = segment.held_rows - len(segment.held[0].rows)
            if following < self._options.n - 1:
                return
            yield self._emit_first(segment, closed=False)

    def _close(self, segment: _Segment, *, ends: bool = False) -> Iterator[Action]:
        """Emit what is held; ``ends``: the last one says that it is the stream's."""
        segment.closed = True
        while segment.held:
            if ends and len(segment.held) == 1:
                last = segment.held[0]
                told = replace(last.unroll, end_of_stream=True)
                segment.held[0] = replace(last, unroll=told)
            yield self._emit_first(segment, closed=True)

    def _close_up_to(
        self, worker: str, incarnation: int, *, ends: bool = False
    ) -> list[Action]:
        actions: list[Action] = []
        for number, segment in sorted(self._streams.get(worker, {}).items()):
            if number <= incarnation:
                actions += self._close(segment, ends=ends)
        return actions

    def _forget_before(self, worker: str, incarnation: int) -> list[Action]:
        actions = self._close_up_to(worker, incarnation - 1)
        streams = self._streams.get(worker, {})
        for number in [number for number in streams if number < incarnation]:
            del streams[number]
        return actions

    def _emit_first(self, segment: _Segment, *, closed: bool) -> Emit:
        action = self._emit(list(segment.held), closed)
        first = segment.held.popleft()
        segment.held_rows -= len(first.rows)
        return action

    def _emit(self, held: list[_Held], closed: bool) -> Emit:
        first, options = held[0], self._options
        num_steps = first.unroll.num_steps
        rows = join([each.rows for each in held], num_steps + options.n - 1)
        found = n_step(
            rows.rewards,
            rows.terminated,
            rows.truncated,
            rows.valid,
            num_steps=num_steps,
            n=options.n,
            gamma=options.gamma,
            reward_scale=options.reward_scale,
            closed=closed,
            finite=rows.finite,
        )
        priorities = td_priorities(
            found, rows.values, rows.taken, options.priority_epsilon
        )
        batch = to_batch(
            first.unroll,
            SourceRef(self._topic, self._partition, first.offset),
            options,
            {
                "returns": pack(found.returns),
                "discounts": pack(found.discounts),
                "bootstrap_steps": pack(found.bootstrap_steps),
                "priorities": pack(priorities),
            },
        )
        return Emit(first.offset, batch, first.rows.num_valid)


# Every field of an Unroll passes through as it came, but for ``end_of_stream`` of one
# that a StreamEnd follows.
_PASSED = tuple(each.name for each in fields(Unroll))


def to_batch(
    unroll: Unroll,
    source: SourceRef,
    options: ReturnOptions,
    columns: Mapping[str, Tensor],
) -> TransitionBatch:
    """Return the unroll's rows with the columns that were computed for them."""
    passed: dict[str, Any] = {name: getattr(unroll, name) for name in _PASSED}
    return TransitionBatch(
        **passed,
        source=source,
        n_step=options.n,
        gamma=options.gamma,
        reward_scale=options.reward_scale,
        returns=columns["returns"],
        discounts=columns["discounts"],
        bootstrap_steps=columns["bootstrap_steps"],
        priorities=columns["priorities"],
    )
