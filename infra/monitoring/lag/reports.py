"""What was seen of groups at once -> a report of their lag; pure."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from infra.monitoring.lag.figures import assess
from infra.monitoring.lag.groups import Group
from infra.monitoring.lag.model import GroupLag, LagReport, PartitionLag, Place, Sample
from infra.monitoring.lag.window import Window

_log = logging.getLogger("rollstream.lag")


@dataclass(frozen=True)
class Look:
    """What was seen at once.

    Attributes:
        at_s: when its last part was read, seconds since the epoch.
        took_s: for how long the brokers were asked.
        groups: by id.
        samples: of the partitions that could be read.
        unread: partitions that could not be, and why.
    """

    at_s: float
    took_s: float
    groups: Mapping[str, Group]
    samples: Mapping[Place, Sample]
    unread: Mapping[Place, str] = field(default_factory=dict)


def report_of(
    look: Look,
    windows: Mapping[Place, Window],
    rows_per_record: Mapping[str, float],
    before: LagReport | None = None,
) -> LagReport:
    """Return what a look shows.

    Args:
        look: the newest one.
        windows: of its places, and of those that could not be read this time.
        rows_per_record: steps of environments in a record, by group.
        before: the last report: of a group whose offsets could not be read, what it
            says holds until they can.
    """
    of: dict[str, list[PartitionLag]] = {group: [] for group in look.groups}
    problems: dict[str, list[str]] = {group: [] for group in look.groups}
    for place in sorted({*look.samples, *look.unread}):
        why, rows = look.unread.get(place, ""), rows_per_record.get(place.group)
        if place in windows:
            try:
                found = assess(place, windows[place], rows_per_record=rows)
                of[place.group].append(found)
            except Exception as exc:  # else no other is told of any more
                why = fault(place, exc)
        if why:
            where = f"{place.topic}[{place.partition}]"
            problems[place.group].append(f"{where}: {why}")
    groups = []
    for name, group in sorted(look.groups.items()):
        partitions = tuple(of[name])
        if group.committed is None and before and (old := before.group(name)):
            partitions = old.partitions
        problem = _in_words(group.problem, problems[name])
        groups.append(GroupLag(name, group.state, group.members, partitions, problem))
    return LagReport(look.at_s, tuple(groups), look.took_s)


def fault(place: Place, exc: Exception) -> str:
    """Return what is told of a partition that we cannot make sense of."""
    _log.debug("%s", place, exc_info=exc)
    return f"it makes no sense to us: {type(exc).__name__}: {exc}"


def _in_words(problem: str, places: Collection[str]) -> str:
    first = next(iter(places), "")
    more = f" (and {len(places) - 1} more partitions)" if len(places) > 1 else ""
    return "; ".join(each for each in (problem, first + more) if each)
