"""Which topic a name means at the moment: its id, and how many partitions it has."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class TopicIdentity:
    """A topic that is deleted and made again has another id, and the same name."""

    topic_id: str
    partitions: int


def read_topic_identity(
    admin: AdminClient, topic: str, timeout_s: float = _TIMEOUT_S
) -> TopicIdentity | None:
    """Ask the broker for a topic's identity; None when there is no such topic.

    Raises:
        KafkaException: it does not answer.
        TimeoutError: likewise.
    """
    asked = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)
    try:
        found = asked[topic].result(2 * timeout_s)
    except KafkaException as exc:
        if exc.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
    return TopicIdentity(str(found.topic_id), len(found.partitions))
