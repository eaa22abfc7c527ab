"""Groups that nobody has to read for: that they stand still is no trouble; pure."""

from __future__ import annotations

from dataclasses import replace

from infra.control.desired import PublishedExperiment
from infra.monitoring.lag.model import GroupLag, PartitionLag, Verdict
from infra.monitoring.run_fold import ENDED
from schemas.records import RoleStatus
from schemas.topics import group_name


def why_at_rest(
    group: str, published: PublishedExperiment, status: RoleStatus | None
) -> str:
    """Return why nobody has to read for a group of an experiment; "": somebody has.

    Args:
        group: of the experiment.
        published: what is wanted of it.
        status: the newest of the whole experiment; None: nothing was said.
    """
    spec = published.experiment.spec
    if status is not None and status.run_id == published.run_id:
        if status.state in ENDED:
            return f"the run is {status.state}"
    if spec.state == "stopped":
        return "the experiment is to be stopped"
    is_archiver = group == group_name(published.experiment.name, "archiver")
    return "no archiver is wanted" if is_archiver and not spec.archive else ""


def excused(group: GroupLag, why: str) -> GroupLag:
    """Return a group at rest: that nobody reads any more is in order."""
    if not why:
        return group
    parts = tuple(_excused(each, why) for each in group.partitions)
    return replace(group, partitions=parts)


def _excused(partition: PartitionLag, why: str) -> PartitionLag:
    verdict = partition.verdict
    if verdict.state not in ("STOPPED", "STALLED", "NO_COMMIT", "WARN"):
        return partition
    calm = Verdict("OK", verdict.rule, f"{why}: {verdict.reason}")
    return replace(partition, verdict=calm)
