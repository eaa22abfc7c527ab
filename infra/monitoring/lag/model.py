"""What is seen of consumer groups, and what follows from it.

A collector makes samples of each partition that a group reads; the figures and the
verdict of a partition are pure functions of its last samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

State = Literal[
    "OK", "WARN", "STALLED", "STOPPED", "REWIND", "LOST", "NO_COMMIT", "EMPTY"
]

SEVERITY: Mapping[State, int] = {
    "OK": 0,
    "EMPTY": 0,
    "NO_COMMIT": 1,
    "WARN": 1,
    "REWIND": 2,
    "STALLED": 2,
    "STOPPED": 2,
    "LOST": 2,
}
"""Also the exit code of whoever asks: 0 fine, 1 worth a look, 2 bad."""

# From worst to best, for sorting: what is lost does not come back.
ORDER: tuple[State, ...] = (
    "LOST", "STOPPED", "STALLED", "REWIND", "WARN", "NO_COMMIT", "OK", "EMPTY",
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A partition that a group reads."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a role says that it stands in a partition.

    Attributes:
        position: the next offset that it handles.
        held: records that it has handled and holds back from acknowledging.
        at_s: when it said so, seconds since the epoch by this host's clock, as far as
            that could be compared with the broker's; what only says that it lives does
            not count.
        waits: it leaves records alone on purpose: a learner that is to learn first
            from what it has (its metrics' ``can_learn``).
        ahead_s: by how much this host's clock is ahead of the broker's; None: that is
            not known, and ``at_s`` is by the broker's.
    """

    position: int
    held: int
    at_s: float
    waits: bool = False
    ahead_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One partition of a group at one moment.

    Attributes:
        at_s: when the log's end was read, seconds since the epoch; committed offsets
            and standings were read before it.
        committed: what the group would read from after a restart; None: no commit.
        begin: the first offset that the log still has.
        end: the offset that the next record gets.
        stable_end: where readers of committed data stop; at most ``end``.
        topic_id: which topic the name means; another one after it was made anew.
        members: of the whole group; None: not known.
        owner: the member that holds the partition, ``client@host``; "" when none.
        standing: of a role of ours; None: nothing is known of it.
        markers: how many of the offsets from the next one to ``stable_end`` hold no
            record for a reader, only marks of transactions or what was aborted or
            compacted away; None: not counted.
        next_at_s: when the first record that is not handled yet was appended, by the
            broker's clock; None: not read.
        ahead_s: by how much this host's clock, which ``at_s`` is by, is ahead of the
            broker's; 0 also where that is not known.
    """

    at_s: float
    committed: int | None
    begin: int
    end: int
    stable_end: int
    topic_id: str = ""
    members: int | None = None
    owner: str = ""
    standing: Standing | None = None
    markers: int | None = None
    next_at_s: float | None = None
    ahead_s: float = 0.0

    @property
    def next_appended_at_s(self) -> float | None:
        """When the first record that is not handled was appended, by our clock."""
        return None if self.next_at_s is None else self.next_at_s + self.ahead_s

    @property
    def next(self) -> int | None:
        """The first offset that is not handled: the position where it is known."""
        if self.standing is not None:
            return max(self.standing.position, self.committed or 0)
        return self.committed


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a group does in a partition.

    Attributes:
        state: the first rule's that holds.
        rule: its number, as the judge's documentation counts.
        reason: in words, with the figures that decided.
    """

    state: State
    rule: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """What is known of one partition of a group; None: not known.

    Attributes:
        place: which.
        current: the first offset that is not handled yet.
        committed: what would be read again from after a crash.
        begin: of the log, with ``end`` as a reader of committed data sees it.
        end: likewise.
        open_records: beyond it, in transactions that are not over.
        held: handled, and deliberately not acknowledged yet.
        unsaved: read and not committed yet, the held ones included.
        lag: records from ``current`` to ``end``, marks of transactions left out; also
            not known where ``current`` is of another log.
        raw_lag: ``end`` less the committed offset as the broker tells it: may be
            negative after a topic was made anew, and counts marks.
        lag_env_steps: the same lag in steps of environments.
        lag_s: for how long the oldest record that is not handled has been in the log.
        lag_s_method: ``record``, its time of append was read; ``interpolated``,
            between samples of the log's end; "" when not known, or there is no lag.
        produced_per_s: records, over the last 30 s; over the whole window of samples
            where only commits are known, which are rare.
        consumed_per_s: likewise.
        catch_up_s: until the lag is 0 at these rates; None also where it never is.
        retention_used: which share of the log lies behind the reader: at 1 the next
            record to expire is one that was not read.
        owner: the member that holds it; "" when none.
        verdict: of the judge.
    """

    place: Place
    current: int | None
    committed: int | None
    begin: int
    end: int
    open_records: int
    held: int
    unsaved: int | None
    lag: int | None
    raw_lag: int | None
    lag_env_steps: int | None
    lag_s: float | None
    lag_s_method: str
    produced_per_s: float | None
    consumed_per_s: float | None
    catch_up_s: float | None
    retention_used: float | None
    owner: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A consumer group.

    Attributes:
        group: its id.
        state: as the broker names it: ``Stable``, ``Empty``, ...; "" not known.
        members: that it has; None: not known.
        partitions: that it reads or has committed in, by topic and number.
        problem: why something of it is not known; "" when all is.
    """

    group: str
    state: str
    members: int | None
    partitions: tuple[PartitionLag, ...]
    problem: str = ""

    @property
    def lag(self) -> int | None:
        """Records, of all partitions whose lag is known; None when none is."""
        return _sum(each.lag for each in self.partitions)

    @property
    def lag_env_steps(self) -> int | None:
        """Likewise, in steps of environments."""
        return _sum(each.lag_env_steps for each in self.partitions)

    @property
    def lag_s(self) -> float | None:
        """Of the partition that is furthest behind."""
        known = [each.lag_s for each in self.partitions if each.lag_s is not None]
        return max(known, default=None)

    @property
    def worst(self) -> PartitionLag | None:
        """The partition that does worst: by its verdict, then by its lag."""
        return min(self.partitions, key=badness, default=None)

    @property
    def verdict(self) -> Verdict | None:
        """Of the worst partition."""
        return self.worst.verdict if self.worst else None


@dataclass(frozen=True, slots=True)
class LagReport:
    """All groups that are watched.

    Attributes:
        at_s: when its last part was read, seconds since the epoch; 0 before the first.
        groups: by id.
        took_s: for how long the brokers were asked.
        problem: why there is nothing new; "" when there is.
    """

    at_s: float
    groups: tuple[GroupLag, ...]
    took_s: float = 0.0
    problem: str = ""

    def group(self, name: str) -> GroupLag | None:
        """Return a group; None when it is not watched."""
        return next((each for each in self.groups if each.group == name), None)


NO_REPORT = LagReport(0.0, ())


def badness(partition: PartitionLag) -> tuple[int, int, Place]:
    """Return a key that sorts the worst first."""
    state = ORDER.index(partition.verdict.state)
    return state, -(partition.lag or 0), partition.place


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
