"""Declared topics -> topics that exist as declared, or an error that says why not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from infra.errors import TopicDrift, TopicError
from infra.kafka.asking import answer, ask
from infra.kafka.topic_description import (
    ADMIN_TIMEOUT_S,
    TopicDescription,
    cluster_metadata,
    describe_topics,
)
from infra.settings import Settings

__all__ = [
    "TopicConfig",
    "TopicDescription",
    "TopicReport",
    "alter_config",
    "delete_topics",
    "describe_topics",
    "ensure_topics",
]

_POLL_S = 0.05

# A difference here loses data or misorders it: compaction in place of deletion, or
# old records deleted by a producer's clock. Others are left to the administrator.
CRITICAL_CONFIG = ("cleanup.policy", "message.timestamp.type")


@dataclass(frozen=True)
class TopicConfig:
    """A topic as it has to be."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicReport:
    """What was found or done for one topic."""

    name: str
    created: bool
    differing: Mapping[str, str] = field(default_factory=dict)
    """Settings that are not as declared, and their value on the cluster."""

    refused: Mapping[str, str] = field(default_factory=dict)
    """Settings that the cluster refused at creation, and its reason."""

    warnings: tuple[str, ...] = ()


def ensure_topics(
    settings: Settings, topics: Sequence[TopicConfig]
) -> list[TopicReport]:
    """Creates what is missing and checks what exists; harmless to repeat.

    Returns when every topic has its leaders, so that producing can start.

    Raises:
        TopicDrift: A topic has other partitions or another critical setting.
        TopicError: A topic cannot be created.
        KafkaUnavailable: No broker answers.
    """
    return ask(settings, lambda admin: _ensure(settings, admin, topics))


def _ensure(
    settings: Settings, admin: AdminClient, topics: Sequence[TopicConfig]
) -> list[TopicReport]:
    names = [topic.name for topic in topics]
    present = set(cluster_metadata(admin).topics)
    refused = {
        topic.name: _create(admin, topic)
        for topic in topics
        if topic.name not in present
    }
    _wait_for(admin, names, lambda partitions: partitions is not None)
    found = _described(settings, names)
    return [
        _compare(topic, found[topic.name], refused.get(topic.name)) for topic in topics
    ]


def alter_config(settings: Settings, name: str, changes: Mapping[str, str]) -> None:
    """Changes settings of a topic, and leaves its others.

    Raises:
        TopicError: The cluster refuses.
    """
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in changes.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    try:
        ask(settings, lambda admin: _alter(admin, resource))
    except KafkaException as exc:
        raise TopicError(
            f"topic {name}: {dict(changes)} cannot be set: {exc.args[0].str()}",
            "check the permissions of the Kafka user (AlterConfigs on the topic)",
        ) from exc


def _alter(admin: AdminClient, resource: ConfigResource) -> None:
    answer(admin.incremental_alter_configs([resource])[resource])


def _described(settings: Settings, names: Sequence[str]) -> dict[str, TopicDescription]:
    """Describes topics that exist, by name.

    Of several brokers another may be asked, which has not heard of a new one yet.
    """
    deadline = time.monotonic() + ADMIN_TIMEOUT_S
    while True:
        found = {item.name: item for item in describe_topics(settings, names)}
        missing = sorted(set(names) - found.keys())
        if not missing:
            return found
        if time.monotonic() > deadline:
            raise TopicError(
                f"topics {', '.join(missing)} were created, and the brokers do not "
                f"know them after {ADMIN_TIMEOUT_S:g} s",
                "check that the brokers are well",
            )
        time.sleep(_POLL_S)


def delete_topics(settings: Settings, names: Sequence[str]) -> None:
    """Deletes topics, and returns when they are gone; absent ones are no error."""
    if names:
        ask(settings, lambda admin: _delete(admin, names))


def _delete(admin: AdminClient, names: Sequence[str]) -> None:
    for name, future in admin.delete_topics(list(names)).items():
        try:
            answer(future)
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicError(
                    f"topic {name} cannot be deleted: {exc.args[0].str()}",
                    "check the permissions of the Kafka user (Delete on the topic)",
                ) from exc
    _wait_for(admin, names, lambda partitions: partitions is None)


def _create(admin: AdminClient, topic: TopicConfig) -> dict[str, str]:
    """Creates one topic; returns the optional settings that were refused."""
    error = _try_create(admin, topic, topic.config)
    if error is None:
        return {}
    if error.code() not in (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION):
        raise _creation_error(topic, error)
    # Managed clusters forbid some settings and name only the first: find all.
    required = {k: v for k, v in topic.config.items() if k in CRITICAL_CONFIG}
    kept, refused = dict(required), {}
    for key in topic.config.keys() - required.keys():
        trial = {**required, key: topic.config[key]}
        reason = _try_create(admin, topic, trial, validate_only=True)
        if reason is None:
            kept[key] = topic.config[key]
        else:
            refused[key] = reason.str()
    error = _try_create(admin, topic, kept)
    if error is not None:
        raise _creation_error(topic, error)
    return refused


def _creation_error(topic: TopicConfig, error: KafkaError) -> TopicError:
    return TopicError(
        f"topic {topic.name} cannot be created: {error.str()}",
        "check the permissions of the Kafka user (Create on the topic), or let an "
        "administrator create what `rollstream topics --print` lists",
    )


def _try_create(
    admin: AdminClient,
    topic: TopicConfig,
    config: Mapping[str, str],
    validate_only: bool = False,
) -> KafkaError | None:
    # replication -1: as many as the cluster's administrator has chosen.
    new = NewTopic(topic.name, topic.partitions, -1, config=dict(config))
    future = admin.create_topics([new], validate_only=validate_only)[topic.name]
    try:
        answer(future)
    except KafkaException as exc:
        error = exc.args[0]
        # Another process was faster: what it made is compared below.
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return None
        return _as_error(error)
    return None


def _as_error(error: Any) -> KafkaError:
    assert isinstance(error, KafkaError)
    return error


def _compare(
    topic: TopicConfig, found: TopicDescription, refused: Mapping[str, str] | None
) -> TopicReport:
    if found.partitions != topic.partitions:
        raise _drift(topic.name, "partitions", topic.partitions, found.partitions)
    differing = {
        key: found.config.get(key, "(none)")
        for key, value in topic.config.items()
        if not _same(value, found.config.get(key))
    }
    for key in CRITICAL_CONFIG:
        if key in differing:
            raise _drift(topic.name, key, topic.config[key], differing[key])
    return TopicReport(
        name=topic.name,
        created=refused is not None,
        differing=differing,
        refused=refused or {},
        warnings=_warnings(found),
    )


def _same(expected: str, found: str | None) -> bool:
    # Lists come back in any order: "compact,delete".
    return found is not None and set(expected.split(",")) == set(found.split(","))


def _warnings(found: TopicDescription) -> tuple[str, ...]:
    in_sync = int(found.config.get("min.insync.replicas", "1"))
    if found.replication > 1 and in_sync < 2:
        return (
            f"topic {found.name} has {found.replication} replicas but "
            f"min.insync.replicas={in_sync}: a record may be acknowledged by one "
            "broker only and be lost with it; set it to 2",
        )
    return ()


def _drift(name: str, setting: str, expected: Any, found: Any) -> TopicDrift:
    if setting == "partitions":
        mend = (
            "partitions never change: use the number found in the experiment's spec, "
            "or delete the experiment and launch it again"
        )
    else:
        mend = (
            f"set it back with `kafka-configs.sh --alter --entity-type topics "
            f"--entity-name {name} --add-config {setting}={expected}`, or delete the "
            "topic if its data is not needed"
        )
    return TopicDrift(f"topic {name}: {setting} is {found}, expected {expected}", mend)


def _wait_for(
    admin: AdminClient, names: Sequence[str], done: Callable[[Any], bool]
) -> None:
    """Waits until creation or deletion has reached the brokers' metadata."""
    deadline = time.monotonic() + ADMIN_TIMEOUT_S
    while True:
        topics = cluster_metadata(admin).topics
        ready = {name: _led_partitions(topics.get(name)) for name in names}
        waiting = [name for name, partitions in ready.items() if not done(partitions)]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise TopicError(
                f"topics {', '.join(waiting)} are not settled after "
                f"{ADMIN_TIMEOUT_S:g} s",
                "look at the brokers: partitions may have no leader",
            )
        time.sleep(_POLL_S)


def _led_partitions(topic: Any) -> Any:
    if topic is None or topic.error is not None or not topic.partitions:
        return None
    led = all(partition.leader >= 0 for partition in topic.partitions.values())
    return topic.partitions if led else None
