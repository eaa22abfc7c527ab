"""Identities of batches in, verdicts out: each row of a stream is learnt from once.

A stream is (worker, incarnation); within it ``sequence`` and ``first_step`` have no
holes. Nothing here knows a consumer: the ledger is a value that a checkpoint carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from schemas.records import TransitionBatch

MAX_INCARNATIONS = 16
"""Streams of one worker that are remembered; older ones never change again."""

MAX_HOLES = 256
"""Holes of one stream that may still be filled; older ones stay lost."""


class Verdict(Enum):
    """What to do with a batch."""

    NEW = "new"
    """Insert it: it is what comes next, or the first after a hole."""

    RECOVERED = "recovered"
    """Insert it: it fills a hole that had been counted lost."""

    DUPLICATE = "duplicate"
    """Drop it: its rows were taken before."""

    FOREIGN = "foreign"
    """Drop it: another run wrote it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which rows of which stream a batch holds."""

    run_id: str
    worker: str
    incarnation: int
    sequence: int
    first_step: int
    num_steps: int
    num_envs: int

    @classmethod
    def of(cls, batch: TransitionBatch) -> Identity:
        """Return the identity of a batch."""
        return cls(
            batch.run_id,
            batch.worker,
            batch.incarnation,
            batch.sequence,
            batch.first_step,
            batch.num_steps,
            batch.num_envs,
        )

    @property
    def next_step(self) -> int:
        """The vector step after the last row."""
        return self.first_step + self.num_steps


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and what it did to the counts.

    Attributes:
        verdict: what to do.
        lost_steps: counted lost by this batch, which came after a hole.
        recovered_steps: counted lost before, and brought by this batch.
        note: what a person should know; empty when all is well.
    """

    verdict: Verdict
    lost_steps: int = 0
    recovered_steps: int = 0
    note: str = ""


@dataclass(slots=True)
class Hole:
    """Sequences [first_sequence, end_sequence) that have not come; steps likewise."""

    first_sequence: int
    end_sequence: int
    first_step: int
    end_step: int
    num_envs: int

    @property
    def lost(self) -> int:
        """Steps counted lost: of every environment, as validity cannot be known."""
        return (self.end_step - self.first_step) * self.num_envs

    @property
    def is_empty(self) -> bool:
        """Whether nothing is missing any more."""
        return self.first_sequence == self.end_sequence and self.lost == 0


@dataclass(slots=True)
class Stream:
    """What has come of a stream."""

    next_sequence: int
    next_step: int
    num_envs: int
    holes: list[Hole] = field(default_factory=list)


class Ledger:
    """Judges each batch by what came before it.

    Counts are steps of single environments. ``lost`` counts each missing vector step
    once for each environment, whether or not the row would have been valid: nobody
    knows. It never goes below what is missing and ``recovered`` takes back the same
    number, so ``lost`` is 0 exactly when no stream has a hole.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.lost_steps = 0
        self.recovered_steps = 0
        self._streams: dict[str, dict[int, Stream]] = {}
        # Below this incarnation a worker's streams were forgotten.
        self._forgotten: dict[str, int] = {}

    def judge(self, batch: Identity, *, log_was_cut: bool = False) -> Judgement:
        """Return what to do with a batch, and remember that it came.

        Args:
            batch: the identity, in the order of the log.
            log_was_cut: the partition's log no longer held its beginning when the run
                was first read, so a stream may have begun before it: the first batch
                that is seen of a worker then sets where its stream begins.
        """
        if batch.run_id != self.run_id:
            return Judgement(Verdict.FOREIGN)
        if batch.incarnation < self._forgotten.get(batch.worker, 0):
            return Judgement(
                Verdict.DUPLICATE,
                note=f"{_name(batch)}: a stream too old to be remembered; dropped",
            )
        streams = self._streams.setdefault(batch.worker, {})
        stream = streams.get(batch.incarnation)
        if stream is None:
            baseline = log_was_cut and not streams
            stream = streams[batch.incarnation] = _begin(batch, baseline)
            self._forget_old(batch.worker)
        return self._judge_within(stream, batch)

    def next_step(self, worker: str, incarnation: int) -> int:
        """Return the vector step that a stream continues at; 0 when none has come."""
        stream = self._streams.get(worker, {}).get(incarnation)
        return stream.next_step if stream else 0

    def newest(self) -> Iterator[tuple[str, int, int]]:
        """Yield (worker, newest incarnation, its next step)."""
        for worker, streams in self._streams.items():
            if streams:
                incarnation = max(streams)
                yield worker, incarnation, streams[incarnation].next_step

    def holes(self) -> Iterator[tuple[str, int, Hole]]:
        """Yield (worker, incarnation, hole) of all that could still be filled."""
        for worker, streams in self._streams.items():
            for incarnation, stream in streams.items():
                for hole in stream.holes:
                    yield worker, incarnation, hole

    def _judge_within(self, stream: Stream, batch: Identity) -> Judgement:
        if batch.sequence < stream.next_sequence:
            return self._fill(stream, batch)
        if batch.first_step < stream.next_step:
            # A forward sequence with rows that came before: not one of our writers.
            return Judgement(
                Verdict.DUPLICATE,
                note=f"{_name(batch)}: expected a first step of at least "
                f"{stream.next_step}, found {batch.first_step}; dropped",
            )
        lost, note = 0, ""
        if batch.sequence > stream.next_sequence or batch.first_step > stream.next_step:
            hole = Hole(
                stream.next_sequence,
                batch.sequence,
                stream.next_step,
                batch.first_step,
                batch.num_envs,
            )
            lost = hole.lost
            note = (
                f"{_name(batch)}: sequences {hole.first_sequence} to "
                f"{hole.end_sequence - 1}, steps {hole.first_step} to "
                f"{hole.end_step - 1} are missing"
            )
            stream.holes.append(hole)
            del stream.holes[:-MAX_HOLES]
            self.lost_steps += lost
        stream.next_sequence = batch.sequence + 1
        stream.next_step = batch.next_step
        stream.num_envs = batch.num_envs
        return Judgement(Verdict.NEW, lost_steps=lost, note=note)

    def _fill(self, stream: Stream, batch: Identity) -> Judgement:
        for index, hole in enumerate(stream.holes):
            if hole.first_sequence <= batch.sequence < hole.end_sequence:
                return self._split(stream, index, batch)
        return Judgement(Verdict.DUPLICATE)

    def _split(self, stream: Stream, index: int, batch: Identity) -> Judgement:
        hole = stream.holes[index]
        if batch.first_step < hole.first_step or batch.next_step > hole.end_step:
            return Judgement(
                Verdict.DUPLICATE,
                note=f"{_name(batch)}: expected steps within {hole.first_step} to "
                f"{hole.end_step}, found {batch.first_step} to {batch.next_step}",
            )
        before = hole.lost
        parts = [
            Hole(
                hole.first_sequence,
                batch.sequence,
                hole.first_step,
                batch.first_step,
                hole.num_envs,
            ),
            Hole(
                batch.sequence + 1,
                hole.end_sequence,
                batch.next_step,
                hole.end_step,
                hole.num_envs,
            ),
        ]
        kept = [part for part in parts if not part.is_empty]
        stream.holes[index : index + 1] = kept
        recovered = before - sum(part.lost for part in kept)
        self.lost_steps -= recovered
        self.recovered_steps += recovered
        return Judgement(Verdict.RECOVERED, recovered_steps=recovered)

    def _forget_old(self, worker: str) -> None:
        streams = self._streams[worker]
        while len(streams) > MAX_INCARNATIONS:
            oldest = min(streams)
            del streams[oldest]
            self._forgotten[worker] = oldest + 1

    def state(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "run_id": self.run_id,
            "lost_steps": self.lost_steps,
            "recovered_steps": self.recovered_steps,
            "forgotten": dict(self._forgotten),
            "streams": [
                {"worker": worker, "incarnation": incarnation, **asdict(stream)}
                for worker, streams in self._streams.items()
                for incarnation, stream in streams.items()
            ],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Ledger:
        """Return the ledger that ``state`` was taken of."""
        ledger = cls(state["run_id"])
        ledger.lost_steps = state["lost_steps"]
        ledger.recovered_steps = state["recovered_steps"]
        ledger._forgotten = dict(state["forgotten"])
        for item in state["streams"]:
            holes = [Hole(**hole) for hole in item["holes"]]
            streams = ledger._streams.setdefault(item["worker"], {})
            streams[item["incarnation"]] = Stream(
                item["next_sequence"], item["next_step"], item["num_envs"], holes
            )
        return ledger


def _begin(batch: Identity, baseline: bool) -> Stream:
    if baseline:
        return Stream(batch.sequence, batch.first_step, batch.num_envs)
    return Stream(0, 0, batch.num_envs)


def _name(batch: Identity) -> str:
    return f"{batch.worker} incarnation {batch.incarnation} sequence {batch.sequence}"
