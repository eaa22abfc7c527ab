"""A lag report -> JSON-able values, with the sums of each group."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from infra.monitoring.lag.model import GroupLag, LagReport, PartitionLag, Verdict

_FIGURES = [
    each.name for each in fields(PartitionLag) if each.name not in ("place", "verdict")
]


def plain_report(report: LagReport) -> dict[str, Any]:
    """Return a report as it is printed and served; what is no number is None."""
    return {
        "at_s": report.at_s,
        "took_s": report.took_s,
        "problem": report.problem,
        "groups": [plain_group(group) for group in report.groups],
    }


def plain_group(group: GroupLag) -> dict[str, Any]:
    """Return a group with its sums, and the verdict on its worst partition."""
    return {
        "group": group.group,
        "state": group.state,
        "members": group.members,
        "problem": group.problem,
        "lag": group.lag,
        "lag_env_steps": group.lag_env_steps,
        "lag_s": _finite(group.lag_s),
        "verdict": plain_verdict(group.verdict) if group.verdict else None,
        "partitions": [plain_partition(each) for each in group.partitions],
    }


def plain_partition(partition: PartitionLag) -> dict[str, Any]:
    """Return a partition's figures, its place beside them."""
    place, verdict = partition.place, partition.verdict
    return {
        "group": place.group,
        "topic": place.topic,
        "partition": place.partition,
        **{name: _finite(getattr(partition, name)) for name in _FIGURES},
        "verdict": plain_verdict(verdict),
    }


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict; there are thousands a second: `asdict` takes its time."""
    return {"state": verdict.state, "rule": verdict.rule, "reason": verdict.reason}


def _finite(value: Any) -> Any:
    """JSON has no word for what is infinite, or no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
