"""Topics as they are: partitions, settings, ids, offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ResourceType,
)

from infra.errors import KafkaUnavailable, TopicError
from infra.kafka.asking import answer, ask
from infra.kafka.offsets import BEGIN, END, Answers, ask_offsets
from infra.settings import Settings

ADMIN_TIMEOUT_S = 30.0
_POLL_S = 0.05

_PASSING_ERRORS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
)


@dataclass(frozen=True)
class TopicDescription:
    """A topic as it is."""

    name: str
    topic_id: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    beginning_offsets: tuple[int, ...]
    """The first offset that is still there, by partition."""

    end_offsets: tuple[int, ...]
    """The offset that the next record gets, by partition."""


def describe_topics(settings: Settings, names: Sequence[str]) -> list[TopicDescription]:
    """Describes those of the topics that exist, in the order of `names`.

    Raises:
        TopicError: They may not be described, or have no leader.
        KafkaUnavailable: No broker answers.
    """
    return ask(settings, lambda admin: _describe_settled(admin, names))


def _describe_settled(
    admin: AdminClient, names: Sequence[str]
) -> list[TopicDescription]:
    deadline = time.monotonic() + ADMIN_TIMEOUT_S
    while True:
        try:
            return _describe(admin, names)
        except KafkaException as exc:
            error = exc.args[0]
            # A new topic is in the metadata shortly before its leaders serve it.
            if error.code() in _PASSING_ERRORS and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                continue
            raise TopicError(
                f"topics {', '.join(names)} cannot be described: {error.str()}",
                "check that the brokers are well, and the permissions of the Kafka "
                "user (Describe, DescribeConfigs)",
            ) from exc


def _describe(admin: AdminClient, names: Sequence[str]) -> list[TopicDescription]:
    present = cluster_metadata(admin).topics
    existing = [name for name in names if name in present]
    if not existing:
        return []
    ids = _topic_ids(admin, existing)
    configs = _configs(admin, existing)
    sizes = {name: len(present[name].partitions) for name in existing}
    places = [(name, each) for name, size in sizes.items() for each in range(size)]
    asked = ask_offsets(admin, places, ADMIN_TIMEOUT_S, BEGIN, END)
    begins, ends = (_by_topic(each, sizes) for each in asked)
    return [
        TopicDescription(
            name=name,
            topic_id=ids[name],
            partitions=sizes[name],
            replication=len(present[name].partitions[0].replicas),
            config=configs[name],
            beginning_offsets=begins[name],
            end_offsets=ends[name],
        )
        for name in existing
    ]


def cluster_metadata(admin: AdminClient) -> Any:
    """Returns brokers and topics; raises KafkaUnavailable."""
    try:
        return admin.list_topics(timeout=ADMIN_TIMEOUT_S)
    except KafkaException as exc:
        raise _unavailable(exc) from exc


def topic_exists(admin: AdminClient, name: str) -> bool:
    """Say whether there is a topic; raises KafkaUnavailable."""
    try:
        found = admin.list_topics(name, timeout=ADMIN_TIMEOUT_S).topics[name]
    except KafkaException as exc:
        raise _unavailable(exc) from exc
    return found.error is None


def _unavailable(exc: KafkaException) -> KafkaUnavailable:
    return KafkaUnavailable(
        f"no broker answers within {ADMIN_TIMEOUT_S:g} s: {exc.args[0].str()}",
        "check KAFKA_BOOTSTRAP_SERVERS, or start the local cluster with "
        "`rollstream up`",
    )


def _topic_ids(admin: AdminClient, names: Sequence[str]) -> dict[str, str]:
    futures = admin.describe_topics(TopicCollection(list(names)))
    return {name: str(answer(future).topic_id) for name, future in futures.items()}


def _configs(admin: AdminClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    futures = admin.describe_configs(resources)
    return {
        resource.name: {
            key: entry.value
            for key, entry in answer(future).items()
            if entry.value is not None
        }
        for resource, future in futures.items()
    }


def _by_topic(asked: Answers, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    found = {place: int(answer(future).offset) for place, future in asked.items()}
    return {
        name: tuple(found[name, partition] for partition in range(size))
        for name, size in sizes.items()
    }
