"""A lag report -> the rows of a table, the worst first; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from infra.monitoring.lag.model import (
    SEVERITY,
    GroupLag,
    LagReport,
    PartitionLag,
    State,
    badness,
)

# What is not known of a group is worth a look, whatever its partitions say.
UNKNOWN_SEVERITY = 1


@dataclass(frozen=True, slots=True)
class LagRow:
    """A partition that a group reads, or all that it reads of a topic.

    Of a whole topic, counts and rates are sums, and times those of the worst
    partition. None: not known.

    Attributes:
        topic: "" where it is not known what the group reads.
        partition: None: the row is of the topic's ``partitions`` together.
        state: of the worst partition; None where there is none.
        owner: the member, or how many hold partitions.
        reason: of the state.
        problem: why something of the group is not known; "" when all is.
    """

    group: str
    topic: str
    partition: int | None
    partitions: int
    current: int | None
    end: int | None
    lag: int | None
    lag_s: float | None
    lag_s_method: str
    lag_env_steps: int | None
    state: State | None
    committed: int | None
    held: int
    unsaved: int | None
    open_records: int
    produced_per_s: float | None
    consumed_per_s: float | None
    catch_up_s: float | None
    retention_used: float | None
    members: int | None
    owner: str
    reason: str
    problem: str

    @property
    def severity(self) -> int:
        """0 fine, 1 worth a look, 2 bad."""
        of_state = SEVERITY[self.state] if self.state else 0
        return max(of_state, UNKNOWN_SEVERITY if self.problem else 0)

    @property
    def words(self) -> str:
        """The reason of the state, and what is not known."""
        return "; ".join(filter(None, (self.reason, self.problem)))


def rows_of(report: LagReport, *, by_partition: bool) -> list[LagRow]:
    """Return a row of each partition, or of each topic that a group reads."""
    found = [
        (badness(worst), _row(group, of_row, worst, by_partition))
        for group in report.groups
        for of_row in _parts(group, by_partition)
        for worst in [min(of_row, key=badness)]
    ]
    # The lag of all partitions, not that of the worst, where a row is of many.
    found.sort(key=lambda each: (each[0][0], -(each[1].lag or 0), each[0][2]))
    bare = [_bare(group) for group in report.groups if not group.partitions]
    bare.sort(key=lambda row: (not row.problem, row.group))
    known = [row for _, row in found]
    troubled = sum(bool(row.problem) for row in bare)
    return [*bare[:troubled], *known, *bare[troubled:]]


def exit_code(rows: Sequence[LagRow]) -> int:
    """Return 0 where all is well, 1 where something is worth a look, 2 for worse."""
    return max((row.severity for row in rows), default=0)


def _parts(group: GroupLag, by_partition: bool) -> Iterable[Sequence[PartitionLag]]:
    if by_partition:
        return ([each] for each in group.partitions)
    by_topic: dict[str, list[PartitionLag]] = {}
    for each in group.partitions:
        by_topic.setdefault(each.place.topic, []).append(each)
    return by_topic.values()


def _row(
    group: GroupLag,
    each: Sequence[PartitionLag],
    worst: PartitionLag,
    by_partition: bool,
) -> LagRow:
    latest = max(each, key=lambda one: one.lag_s or 0.0)
    reason = worst.verdict.reason
    if not by_partition and len(each) > 1 and reason:
        reason = f"[{worst.place.partition}] {reason}"
    return LagRow(
        group=group.group,
        topic=worst.place.topic,
        partition=worst.place.partition if by_partition else None,
        partitions=len(each),
        current=_sum_of_all(one.current for one in each),
        end=sum(one.end for one in each),
        lag=_sum_of_known(one.lag for one in each),
        lag_s=latest.lag_s,
        lag_s_method=latest.lag_s_method,
        lag_env_steps=_sum_of_known(one.lag_env_steps for one in each),
        state=worst.verdict.state,
        committed=_sum_of_all(one.committed for one in each),
        held=sum(one.held for one in each),
        unsaved=_sum_of_known(one.unsaved for one in each),
        open_records=sum(one.open_records for one in each),
        produced_per_s=_sum_of_rates(one.produced_per_s for one in each),
        consumed_per_s=_sum_of_rates(one.consumed_per_s for one in each),
        catch_up_s=_slowest(each),
        retention_used=max(
            (one.retention_used for one in each if one.retention_used is not None),
            default=None,
        ),
        members=group.members,
        owner=_owners(each),
        reason=reason,
        problem=group.problem,
    )


def _bare(group: GroupLag) -> LagRow:
    """Return the row of a group of which no partition is known."""
    return LagRow(
        group.group, "", None, 0, None, None, None, None, "", None, None, None, 0,
        None, 0, None, None, None, None, group.members, "",
        "" if group.problem else "reads nothing, and has committed nothing",
        group.problem,
    )  # fmt: skip


def _owners(each: Sequence[PartitionLag]) -> str:
    owners = sorted({one.owner for one in each} - {""})
    return owners[0] if len(owners) == 1 else f"{len(owners)} members" if owners else ""


def _slowest(each: Sequence[PartitionLag]) -> float | None:
    """Return when the last has caught up; None where one never does."""
    times = [one.catch_up_s for one in each if one.lag or one.catch_up_s is not None]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def _sum_of_all(values: Iterable[int | None]) -> int | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


def _sum_of_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _sum_of_rates(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
