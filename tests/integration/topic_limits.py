"""A topic's limit that is in force, not only written down."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, Message

from infra.kafka.clients import make_producer
from infra.kafka.topic_admin import alter_config
from infra.settings import Settings

_PATIENCE_S = 60.0
# Of a batch beside its record.
_ROOM = 1_000


def limit(settings: Settings, topic: str, num_bytes: int) -> None:
    """Set the largest record that a topic takes.

    The broker answers before it goes by it: records are tried that nobody gets to see.
    """
    alter_config(settings, topic, {"max.message.bytes": str(num_bytes)})
    deadline_s = time.monotonic() + _PATIENCE_S
    while _takes(settings, topic, num_bytes + _ROOM) or not _takes(
        settings, topic, num_bytes - _ROOM
    ):
        assert time.monotonic() < deadline_s, f"{topic} does not go by {num_bytes}"
        time.sleep(0.05)


def _takes(settings: Settings, topic: str, size: int) -> bool:
    # A new one each time: after a refusal the next transaction fails whatever it holds.
    producer = make_producer(
        settings,
        client_id="limit",
        overrides={"transactional.id": f"{topic}-limit", "message.timeout.ms": 60_000},
    )
    taken: list[bool] = []

    def report(error: KafkaError | None, _: Message) -> None:
        taken.append(error is None)

    producer.init_transactions(_PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, bytes(size), b"limit", 0, on_delivery=report)
    producer.flush(_PATIENCE_S)
    producer.abort_transaction(_PATIENCE_S)
    return taken == [True]
