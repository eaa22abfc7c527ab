"""Which topic a name means at the moment: its id, and how many partitions it has."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from infra.errors import KafkaUnavailable

_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class TopicIdentity:
    """A topic that is deleted and made again has another id, and the same name.

    Attributes:
        partitions: how many it has.
        leaderless: those of them that nobody leads at the moment.
    """

    topic_id: str
    partitions: int
    leaderless: frozenset[int] = field(default=frozenset(), compare=False)


def read_topic_identity(
    admin: AdminClient, topic: str, timeout_s: float = _TIMEOUT_S
) -> TopicIdentity | None:
    """Ask the broker for a topic's identity; None when there is no such topic.

    Raises:
        KafkaException: it does not answer.
        TimeoutError: likewise.
    """
    found = read_topic_identities(admin, [topic], timeout_s)[topic]
    if isinstance(found, KafkaException):
        raise found
    return found


def find_topic(
    admin: AdminClient, topic: str, timeout_s: float = _TIMEOUT_S
) -> TopicIdentity | None:
    """Return a topic's identity; None when there is no such topic.

    Raises:
        KafkaUnavailable: the brokers do not answer.
    """
    try:
        return read_topic_identity(admin, topic, timeout_s)
    except (KafkaException, TimeoutError) as exc:
        raise KafkaUnavailable(
            f"nothing is known of {topic}: the brokers do not answer",
            "check that they run",
        ) from exc


def read_topic_identities(
    admin: AdminClient, topics: Collection[str], timeout_s: float = _TIMEOUT_S
) -> dict[str, TopicIdentity | KafkaException | None]:
    """Ask for many at once; None for no such topic, or why one cannot be described.

    Raises:
        TimeoutError: the broker does not answer.
    """
    if not topics:
        return {}
    asked = admin.describe_topics(
        TopicCollection(list(topics)), request_timeout=timeout_s
    )
    identities: dict[str, TopicIdentity | KafkaException | None] = {}
    for topic, future in asked.items():
        try:
            found = future.result(2 * timeout_s)
        except KafkaException as exc:
            unknown = exc.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            identities[topic] = None if unknown else exc
        else:
            identities[topic] = TopicIdentity(
                str(found.topic_id),
                len(found.partitions),
                frozenset(p.id for p in found.partitions if p.leader is None),
            )
    return identities
