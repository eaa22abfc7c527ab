"""The log is the fencing authority: a Member's offset is its incarnation."""

from __future__ import annotations

import logging
import os
import platform

from infra.clock import now_ms
from infra.control.role import RoleContext, StopRequest
from infra.kafka.delivery import Sender
from infra.kafka.reading import latest_by_key
from infra.kafka.schema_registry import publish_shipped
from infra.kafka.topic_admin import (
    TopicConfig,
    TopicReport,
    alter_config,
    ensure_topics,
)
from infra.settings import Settings
from schemas.codec import decode, encode
from schemas.errors import SchemaError
from schemas.experiment import Experiment
from schemas.records import EnvDescription, Member
from schemas.topics import MEMBERS, TOPICS, Topic, topic_config, topic_name

MIN_SEGMENT_BYTES = 16 << 20
MAX_SEGMENT_BYTES = 1 << 30
_BUDGET = ("retention.bytes", "segment.bytes")
_log = logging.getLogger("rollstream")


def register(
    sender: Sender,
    context: RoleContext,
    stop: StopRequest,
    env: EnvDescription | None = None,
) -> int:
    """Publish the Member record of this process; return its offset.

    The offset is unique, grows with every start, and lives as long as the data: the
    incarnation of a worker or evaluator, the epoch of a learner.

    Raises:
        DeliveryError: it cannot be delivered.
        ToldToStop: before it was.
    """
    member = Member(
        experiment=context.experiment.name,
        run_id=context.run_id,
        role=context.role,
        index=context.index,
        host=platform.node(),
        pid=os.getpid(),
        started_at_ms=now_ms(),
        env=env,
    )
    return sender.send_and_wait(
        context.topic(MEMBERS),
        encode(member),
        context.member_key,
        while_waiting=stop.check,
    )


def read_members(context: RoleContext) -> dict[str, tuple[int, Member]]:
    """Return each role's newest Member and its offset, by key ``role/index``."""
    found = {}
    for key, message in latest_by_key(context.settings, context.topic(MEMBERS)).items():
        try:
            found[key] = message.offset, decode(message.value, Member)
        except SchemaError as exc:
            _log.warning("the member %s is passed over: %s", key, exc)
    return found


def ensure_shared_topics(settings: Settings) -> list[TopicReport]:
    """Create the topics that all experiments share, where they are missing.

    The schemas of this version are published as well, once.
    """
    reports = ensure_topics(settings, shared_topics())
    publish_shipped(settings)
    return reports


def ensure_experiment_topics(
    settings: Settings, experiment: Experiment
) -> list[TopicReport]:
    """Create the topics of an experiment, and the shared ones, where missing.

    Raises:
        TopicDrift: one exists and is not what it has to be.
    """
    topics = experiment_topics(experiment)
    reports = ensure_topics(settings, topics)
    for topic, report in zip(topics, reports, strict=True):
        for warning in report.warnings:
            _log.warning("%s", warning)
        # The budget may change while the experiment lives.
        changes = {k: topic.config[k] for k in _BUDGET if k in report.differing}
        if changes:
            alter_config(settings, topic.name, changes)
    return reports


def shared_topics() -> list[TopicConfig]:
    """Return the topics that all experiments share."""
    return [_config(topic, None) for topic in TOPICS if not topic.per_experiment]


def experiment_topics(experiment: Experiment) -> list[TopicConfig]:
    """Return what topics an experiment needs, the shared ones included."""
    return [_config(topic, experiment) for topic in TOPICS]


def _config(topic: Topic, experiment: Experiment | None) -> TopicConfig:
    config = topic_config(topic)
    partitions = 1
    name = topic_name(topic, experiment.name if experiment else None)
    if topic.partitioned and experiment is not None:
        partitions = experiment.spec.topics.partitions
        # The budget is for both big topics; each partition holds its share.
        share = experiment.spec.topics.disk_budget // (2 * partitions)
        config["retention.bytes"] = str(share)
        # Kafka deletes whole segments: large ones would hold far more than the budget.
        segment = min(max(share // 8, MIN_SEGMENT_BYTES), MAX_SEGMENT_BYTES)
        config["segment.bytes"] = str(segment)
    return TopicConfig(name, partitions, config)
