"""An experiment's metrics -> what its alerts are judged by; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from infra.control.desired import PublishedExperiment
from infra.monitoring.alert_rules import GROUP_ROLES
from infra.monitoring.follow import MetricsFollower
from infra.monitoring.lag.model import GroupLag, LagReport, Place, Standing
from schemas.topics import group_name

RECOVERY_S = 10.0
"""For how long lag says nothing after the brokers were away: all have to reconnect."""

_STALE_S = 5.0


@dataclass(frozen=True, slots=True)
class Observed:
    """What the metrics of an experiment said last.

    Attributes:
        published: the spec in force.
        standings: where its roles said that they stand.
        rows_per_record: steps of environments in a record, by the group that reads it.
        learner: what its learner told; {}: nothing.
        at_s: when that was looked at, by a clock that never goes back.
    """

    published: PublishedExperiment
    standings: Mapping[Place, Standing]
    rows_per_record: Mapping[str, float]
    learner: Mapping[str, float]
    at_s: float


def observed(
    published: PublishedExperiment, follower: MetricsFollower, now_s: float
) -> Observed:
    """Return what the metrics say now."""
    learner = follower.progress.points.get(("learner", 0))
    return Observed(
        published,
        follower.standings,
        follower.rows_per_record,
        learner.values if learner else {},
        now_s,
    )


def groups_of(published: PublishedExperiment) -> list[str]:
    """Return the groups of an experiment that are judged."""
    name, archives = published.experiment.name, published.experiment.spec.archive
    roles = [role for role in GROUP_ROLES if role != "archiver" or archives]
    return [group_name(name, role) for role in roles]


def by_role(name: str, groups: Mapping[str, GroupLag]) -> dict[str, GroupLag]:
    """Return those of the groups that are an experiment's, by role."""
    mine = {role: groups.get(group_name(name, role)) for role in GROUP_ROLES}
    return {role: group for role, group in mine.items() if group is not None}


class KnownGroups:
    """Tells what is known of groups now, and nothing that may be old."""

    def __init__(self, seen_at_s: Callable[[Place], float | None]) -> None:
        """Make it.

        Args:
            seen_at_s: tells when a partition was looked at last, seconds since the
                epoch; None: not known.
        """
        self._seen_at_s = seen_at_s
        self._doubted_s = -math.inf

    def of(
        self, report: LagReport, now_s: float, epoch_s: float
    ) -> dict[str, GroupLag]:
        """Return the groups of a report of which something is known now, by id.

        Of a group that has a problem the partitions that were not reached are as they
        were seen last.

        Args:
            report: the newest.
            now_s: of a clock that never goes back.
            epoch_s: seconds since the epoch.
        """
        if not report.at_s and not report.problem:
            return {}  # nothing was looked at yet
        if report.problem or epoch_s - report.at_s > _STALE_S:
            self._doubted_s = now_s
        if now_s - self._doubted_s < RECOVERY_S:
            return {}
        return {
            each.group: each
            for each in report.groups
            if not each.problem or self._is_reached(each, report.at_s)
        }

    def _is_reached(self, group: GroupLag, at_s: float) -> bool:
        seen = (self._seen_at_s(each.place) for each in group.partitions)
        return any(each is not None and at_s - each <= _STALE_S for each in seen)


@dataclass
class Counter:
    """When a counter was last seen to grow."""

    value: float | None = None
    grew_s: float = -math.inf

    def see(self, value: float | None, now_s: float) -> None:
        """Take in its value; what it was before the first is not known."""
        if value is None:
            return
        if self.value is not None and value > self.value:
            self.grew_s = now_s
        self.value = value


class Names(Collection[str]):
    """Names that may change while another thread goes through them."""

    def __init__(self) -> None:
        self.now: frozenset[str] = frozenset()

    def __contains__(self, name: object) -> bool:
        """Whether it is one of them now."""
        return name in self.now

    def __iter__(self) -> Iterator[str]:
        """Go through those that there are now."""
        return iter(self.now)

    def __len__(self) -> int:
        """How many there are now."""
        return len(self.now)
