"""What transactions have in common: whose they are, how long they last, their end."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException, Producer

from infra.kafka.clients import make_producer
from infra.settings import Settings

OPEN_MS = 10_000
"""How long readers wait for a transaction whose process was killed, at least."""

TIMEOUT_S = 30.0
FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
"""Another process has begun under the same transactional id."""


def make_transactional(
    settings: Settings, transactional_id: str, client_id: str
) -> Producer:
    """Return a producer whose records are given out when they are committed."""
    return make_producer(
        settings,
        client_id=client_id,
        overrides={
            "transactional.id": transactional_id,
            "transaction.timeout.ms": OPEN_MS,
            # A record cannot outlive its transaction.
            "message.timeout.ms": OPEN_MS,
        },
    )


def commit(producer: Producer) -> None:
    """Commit the transaction that is open; ask again while that may yet help.

    Raises:
        KafkaException: it is not known to be committed.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            producer.commit_transaction(TIMEOUT_S)
            return
        except KafkaException as exc:
            # Under way: asking again goes on with it, and never begins another.
            if not exc.args[0].retriable() or time.monotonic() > deadline_s:
                raise
