"""A lag report -> series, by the names that public dashboards know, and ours; pure.

``kafka_consumergroup_group_*`` and ``kafka_partition_*`` are named as by
kafka-lag-exporter; ``kafka_consumergroup_lag``, ``_lag_sum``, ``_current_offset``,
``_members`` and ``kafka_topic_*`` as by kafka_exporter.
"""

from __future__ import annotations

from collections.abc import Iterable

from infra.monitoring.lag.model import (
    ORDER,
    SEVERITY,
    GroupLag,
    LagReport,
    PartitionLag,
)
from infra.monitoring.metric_series import Families, Series
from infra.monitoring.worst_lag import worst_groups, worst_partitions

MAX_PARTITIONS = 20_000
"""More than so many partitions of groups are not exported: the worst are."""

MAX_GROUPS = 5_000
"""The same of groups."""

_MEMBER = (
    "cluster_name", "group", "topic", "partition", "member_host", "consumer_id",
    "client_id",
)  # fmt: skip
_GROUP = ("cluster_name", "group")
_PARTITION = ("cluster_name", "topic", "partition")
_PLACE = ("cluster_name", "group", "topic", "partition")
_OF_GROUP = "kafka_consumergroup_group"
_OURS = "rollstream_consumergroup"


def _ours(name: str, text: str) -> Series:
    return Series(f"{_OURS}_{name}", text, _PLACE)


OFFSET = Series(f"{_OF_GROUP}_offset", "Committed offset of a group", _MEMBER)
LAG = Series(f"{_OF_GROUP}_lag", "Records that a group has not handled", _MEMBER)
LAG_S = Series(
    f"{_OF_GROUP}_lag_seconds", "For how long the oldest of them has waited", _MEMBER
)
MAX_LAG = Series(f"{_OF_GROUP}_max_lag", "Of the partition furthest behind", _GROUP)
MAX_LAG_S = Series(f"{_OF_GROUP}_max_lag_seconds", "Likewise in seconds", _GROUP)
SUM_LAG = Series(f"{_OF_GROUP}_sum_lag", "Of all partitions of a group", _GROUP)
TOPIC_SUM_LAG = Series(
    f"{_OF_GROUP}_topic_sum_lag",
    "Of all partitions of a topic",
    ("cluster_name", "group", "topic"),
)
LATEST = Series("kafka_partition_latest_offset", "The next offset", _PARTITION)
EARLIEST = Series("kafka_partition_earliest_offset", "The first offset", _PARTITION)
POLL_MS = Series(
    "kafka_consumergroup_poll_time_ms",
    "How long the brokers were asked",
    ("cluster_name",),
)

_SHORT = ("consumergroup", "topic", "partition")
SHORT_LAG = Series("kafka_consumergroup_lag", LAG.help, _SHORT)
SHORT_OFFSET = Series("kafka_consumergroup_current_offset", OFFSET.help, _SHORT)
SHORT_SUM = Series(
    "kafka_consumergroup_lag_sum", TOPIC_SUM_LAG.help, ("consumergroup", "topic")
)
MEMBERS = Series(
    "kafka_consumergroup_members", "Members of a group", ("consumergroup",)
)
SHORT_LATEST = Series(
    "kafka_topic_partition_current_offset", LATEST.help, ("topic", "partition")
)
SHORT_EARLIEST = Series(
    "kafka_topic_partition_oldest_offset", EARLIEST.help, ("topic", "partition")
)

STATE = Series(
    f"{_OURS}_state", "1: the verdict on a group's worst partition", (*_GROUP, "state")
)
SEVERITY_OF = _ours("severity", "Verdict on a partition: 0 fine, 1 worth a look, 2 bad")
ENV_STEPS = _ours("lag_env_steps", "The lag in steps of environments")
HELD = _ours("held_records", "Handled, and deliberately not acknowledged yet")
UNSAVED = _ours("unsaved_records", "Read and not committed yet, held ones included")
OPEN = _ours("open_records", "In transactions that are not over")
PRODUCED = _ours("produced_per_second", "Records that come")
CONSUMED = _ours("consumed_per_second", "Records that are handled")
CATCH_UP = _ours("catch_up_seconds", "Until the lag is 0 at these rates")
RETENTION = _ours(
    "retention_used_ratio", "At 1 the next record to expire is one that was not read"
)
PROBLEM = Series(f"{_OURS}_problem", "1: not all of a group is known", _GROUP)
LEFT_OUT = Series(
    "rollstream_exporter_left_out_partitions", "Partitions of groups not exported"
)
GROUPS_LEFT_OUT = Series(
    "rollstream_exporter_left_out_groups", "Groups not exported: the worst are"
)

SERIES = tuple(each for each in globals().values() if isinstance(each, Series))
"""All of these."""


def add_lag(families: Families, report: LagReport, cluster: str) -> None:
    """Add what a report says; ``cluster``: how Prometheus knows these brokers."""
    families.add(POLL_MS, (cluster,), 1000 * report.took_s)
    groups = worst_groups(report.groups, MAX_GROUPS)
    shown = worst_partitions(groups, MAX_PARTITIONS)
    every = sum(len(each.partitions) for each in report.groups)
    families.add(LEFT_OUT, (), every - len(shown))
    families.add(GROUPS_LEFT_OUT, (), len(report.groups) - len(groups))
    for group in groups:
        _add_group(families, group, cluster)
    for partition in shown:
        _add_partition(families, partition, cluster)
        _add_ours(families, partition, cluster)


def _add_group(families: Families, group: GroupLag, cluster: str) -> None:
    who = cluster, group.group
    known = [each.lag for each in group.partitions if each.lag is not None]
    families.add(MAX_LAG, who, max(known, default=None))
    families.add(MAX_LAG_S, who, group.lag_s)
    families.add(SUM_LAG, who, group.lag)
    families.add(MEMBERS, (group.group,), group.members)
    families.add(PROBLEM, who, float(bool(group.problem)))
    for topic, lag in _by_topic(group.partitions).items():
        families.add(TOPIC_SUM_LAG, (*who, topic), lag)
        families.add(SHORT_SUM, (group.group, topic), lag)
    if group.verdict is not None:
        for state in ORDER:
            families.add(STATE, (*who, state), float(group.verdict.state == state))


def _by_topic(partitions: Iterable[PartitionLag]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in partitions:
        if each.lag is not None:
            topic = each.place.topic
            found[topic] = found.get(topic, 0) + each.lag
    return found


def _add_partition(families: Families, found: PartitionLag, cluster: str) -> None:
    place = found.place
    client, _, host = found.owner.rpartition("@")
    # The ids of members are not kept: a new one with each restart is a new series.
    member = cluster, place.group, place.topic, place.partition, host, "", client
    families.add(OFFSET, member, found.committed)
    families.add(LAG, member, found.lag)
    families.add(LAG_S, member, found.lag_s)
    short = place.group, place.topic, place.partition
    families.add(SHORT_LAG, short, found.lag)
    families.add(SHORT_OFFSET, short, found.committed)
    latest = found.end + found.open_records
    families.add(LATEST, (cluster, place.topic, place.partition), latest)
    families.add(EARLIEST, (cluster, place.topic, place.partition), found.begin)
    families.add(SHORT_LATEST, (place.topic, place.partition), latest)
    families.add(SHORT_EARLIEST, (place.topic, place.partition), found.begin)


def _add_ours(families: Families, found: PartitionLag, cluster: str) -> None:
    where = cluster, found.place.group, found.place.topic, found.place.partition
    for series, value in (
        (SEVERITY_OF, SEVERITY[found.verdict.state]),
        (ENV_STEPS, found.lag_env_steps),
        (HELD, found.held),
        (UNSAVED, found.unsaved),
        (OPEN, found.open_records),
        (PRODUCED, found.produced_per_s),
        (CONSUMED, found.consumed_per_s),
        (CATCH_UP, found.catch_up_s),
        (RETENTION, found.retention_used),
    ):
        families.add(series, where, value)
