"""What a run under faults has left, as values that the checks judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from schemas.records import StreamEnd, TransitionBatch, Unroll
from tests.chaos.journal import Life

Address = tuple[int, int]  # partition, offset
Version = tuple[int, int]  # epoch, version
Key = tuple[int, int]  # of a checkpoint: epoch, number

HEALED_WITHIN_S = 60.0
"""What is promised of a machine that has nothing else to do."""


@dataclass(frozen=True)
class Logged:
    """A record as a fresh read_committed reader found it; None: not one of ours."""

    partition: int
    offset: int
    at_s: float
    record: Unroll | StreamEnd | TransitionBatch | None
    digest: str

    @property
    def address(self) -> Address:
        return self.partition, self.offset


@dataclass(frozen=True)
class Committed:
    """A group's committed offset at a moment, by the wall clock, after the answer."""

    at_s: float
    role: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Published:
    """A policy version in its topic."""

    offset: int
    version: Version


@dataclass(frozen=True)
class Injected:
    """A fault, and when, by the wall clock."""

    at_s: float
    what: str
    role: str = ""
    index: int = -1
    pid: int = 0


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        asked: it was told to stop by SIGTERM or SIGINT.
        harmed: the harness ended it with SIGKILL, or let it kill itself.
        took_s: from being told to the end.
        words: its last ones.
    """

    role: str
    index: int
    pid: int
    code: int
    at_s: float
    asked: bool = False
    harmed: bool = False
    took_s: float = 0.0
    words: str = ""


@dataclass(frozen=True)
class Healed:
    """After the last fault and the end of the load.

    Attributes:
        took_s: until nothing was left to read, or the wait was given up.
        is_drained: whether nothing was left.
        lag: as the roles report it, by position; None: unknown.
        within_s: how long it may take.
    """

    took_s: float
    is_drained: bool
    lag: dict[str, int | None] = field(default_factory=dict)
    within_s: float = HEALED_WITHIN_S


@dataclass
class Evidence:
    """All of it.

    Attributes:
        second_digests: of a second reading, by kind ("trajectories", "replay").
        uncommitted: addresses of trajectories that only a read_uncommitted reader saw.
        lives: journals of workers and learners.
        expected_exits: codes that an ended process may have unless harmed.
        logs: what the processes said, by ``role/index``.
    """

    name: str
    n_step: int
    gamma: float
    reward_scale: float
    trajectories: list[Logged] = field(default_factory=list)
    replay: list[Logged] = field(default_factory=list)
    second_digests: dict[str, dict[Address, str]] = field(default_factory=dict)
    uncommitted: set[Address] = field(default_factory=set)
    lives: list[Life] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    policies: list[Published] = field(default_factory=list)
    injected: list[Injected] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    left_running: list[str] = field(default_factory=list)
    healed: Healed | None = None
    summary: dict[str, Any] = field(default_factory=dict)

    def of(self, role: str, *kinds: str) -> Iterator[dict[str, Any]]:
        """Yield journal lines of a role's lives, in order."""
        for life in self.lives:
            if life.role.startswith(role):
                yield from life.of(*kinds)

    @property
    def acks(self) -> list[dict[str, Any]]:
        """Unrolls that a broker has acknowledged."""
        return [line for line in self.of("worker", "ack") if not line["error"]]

    @property
    def unrolls(self) -> list[tuple[Logged, Unroll]]:
        """The trajectories' unrolls, by partition and offset."""
        found = [(e, e.record) for e in self.trajectories]
        return [(e, r) for e, r in found if isinstance(r, Unroll)]

    @property
    def batches(self) -> list[tuple[Logged, TransitionBatch]]:
        """The replay topic's batches, by partition and offset."""
        found = [(e, e.record) for e in self.replay]
        return [(e, r) for e, r in found if isinstance(r, TransitionBatch)]

    @property
    def steps_acknowledged(self) -> int:
        return sum(line["valid"] for line in self.acks)

    @property
    def repetitions(self) -> list[tuple[Logged, TransitionBatch]]:
        """Batches in the replay topic that had come before."""
        seen: set[tuple[str, int, int]] = set()
        found = []
        for logged, batch in self.batches:
            who = batch.worker, batch.incarnation, batch.sequence
            if who in seen:
                found.append((logged, batch))
            seen.add(who)
        return found

    @property
    def steps_repeated(self) -> int:
        """Steps of those."""
        return sum(int(b.valid.array().sum()) for _, b in self.repetitions)


@dataclass
class Training:
    """What the learner's whole history amounts to, its restarts taken into account.

    A learner that starts again goes on from a checkpoint: what its predecessor took in
    after that checkpoint is undone, and has to come again.

    Attributes:
        inserts: that count.
        undone: how many inserts did not.
        odd: what does not fit together, in words.
    """

    inserts: list[dict[str, Any]] = field(default_factory=list)
    undone: int = 0
    odd: list[str] = field(default_factory=list)

    @property
    def steps(self) -> int:
        return sum(line["valid"] for line in self.inserts)


def follow_training(lives: list[Life]) -> Training:
    """Fold the learners' journals, oldest first."""
    training, updates = Training(), 0
    marks: dict[Key, tuple[int, int]] = {}
    for life in lives:
        if not life.role.startswith("learner"):
            continue
        for line in life.lines:
            if line["kind"] == "insert":
                training.inserts.append(line)
            elif line["kind"] == "update":
                updates = line["updates"]
            elif line["kind"] == "mark":
                marks[_key(line)] = len(training.inserts), updates
                _check_atomic(training, line)
            elif line["kind"] == "restored":
                updates = _restore(training, marks, line)
    return training


def _key(line: dict[str, Any]) -> Key:
    epoch, number = line["checkpoint"]
    return epoch, number


def _restore(
    training: Training, marks: dict[Key, tuple[int, int]], line: dict[str, Any]
) -> int:
    kept = updates = 0
    if line["checkpoint"] is not None:
        if _key(line) not in marks:
            training.odd.append(
                f"restored {line['checkpoint']}, which no life has made"
            )
            return 0
        kept, updates = marks[_key(line)]
    training.undone += len(training.inserts) - kept
    del training.inserts[kept:]
    if line["checkpoint"] is None:
        return 0
    for name, expected in (("env_steps", training.steps), ("updates", updates)):
        if line[name] != expected:
            training.odd.append(
                f"checkpoint {line['checkpoint']}: expected {name} {expected} by the "
                f"journal, found {line[name]}"
            )
    return updates


def _check_atomic(training: Training, line: dict[str, Any]) -> None:
    """Offsets and rows of a snapshot are of the same moment."""
    positions = {int(p): at for p, at in line["positions"].items()}
    last: dict[int, int] = {}
    for insert in training.inserts[-2_000:]:
        p = insert["partition"]
        last[p] = max(last.get(p, -1), insert["offset"])
    for p, offset in last.items():
        if offset >= positions[p]:
            training.odd.append(
                f"checkpoint {line['checkpoint']}: holds offset {offset} of partition "
                f"{p}, and its position is {positions[p]}"
            )
