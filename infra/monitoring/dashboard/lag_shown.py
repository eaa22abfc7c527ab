"""A lag report -> as much of it as a page is sent each second; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from infra.monitoring.lag.model import GroupLag, LagReport, PartitionLag
from infra.monitoring.lag.own_groups import experiment_of
from infra.monitoring.lag.plain import plain_group, plain_report, plain_verdict
from infra.monitoring.worst_lag import worst_groups, worst_partitions

MAX_GROUPS = 2_000
"""Of more groups the worst are sent; those of experiments in any case."""

MAX_PARTITIONS = 5_000
"""The same of their partitions: a few megabytes, which a browser can draw."""


def lag_values(report: LagReport, experiments: Iterable[str]) -> dict[str, Any]:
    """Return the report as JSON has it, and how much of it was ``left_out``.

    A group's own figures are those of all its partitions.

    Args:
        report: of all groups.
        experiments: those that the page shows.
    """
    names = set(experiments)
    ours = {g.group for g in report.groups if experiment_of(g.group) in names}
    groups = worst_groups(report.groups, MAX_GROUPS, ours)
    shown = worst_partitions(groups, MAX_PARTITIONS, ours)
    every = sum(len(each.partitions) for each in report.groups)
    values = plain_report(replace(report, groups=())) | {
        "left_out": {
            "groups": len(report.groups) - len(groups),
            "partitions": every - len(shown),
        }
    }
    kept: dict[str, list[PartitionLag]] = {}
    for partition in shown:
        kept.setdefault(partition.place.group, []).append(partition)
    values["groups"] = [_values(each, kept.get(each.group, [])) for each in groups]
    return values


def _values(group: GroupLag, shown: list[PartitionLag]) -> dict[str, Any]:
    if len(shown) == len(group.partitions):
        return plain_group(group)
    in_order = sorted(shown, key=lambda each: each.place)
    return plain_group(replace(group, partitions=tuple(in_order))) | {
        "lag": group.lag,
        "lag_env_steps": group.lag_env_steps,
        "lag_s": group.lag_s,
        "verdict": plain_verdict(group.verdict) if group.verdict else None,
    }
