"""The newest metrics of many experiments, and where their logs end.

One consumer for all: an agent hears of everything that it hosts, and of nothing before.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from confluent_kafka import (
    OFFSET_END,
    KafkaException,
    TopicPartition,
)

from infra.kafka.clients import Traffic, make_admin, make_consumer
from infra.kafka.offsets import STABLE_END, ask_offsets
from infra.kafka.reading import OUT_OF_RANGE, to_message
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.records import MetricsPoint
from schemas.topics import METRICS, topic_name

_BATCH = 2_000
_ANSWER_S = 3.0
_log = logging.getLogger("rollstream.health")

Ends = dict[tuple[str, int], int]
"""Where partitions end, by topic and number; those that do not answer are absent."""


class Signs:
    """Hears what processes tell, from now on."""

    def __init__(self, settings: Settings) -> None:
        self._consumer = make_consumer(
            settings, group=None, client_id="health", traffic=Traffic.CONTROL
        )
        self._admin = make_admin(settings, "health")
        self._next: dict[str, int] = {}

    def follow(self, experiments: Collection[str]) -> None:
        """Hear of these from now on, and of no others."""
        topics = {topic_name(METRICS, name) for name in experiments}
        if topics == self._next.keys():
            return
        self._next = {topic: self._next.get(topic, OFFSET_END) for topic in topics}
        self._assign()

    def hear(self) -> list[MetricsPoint]:
        """Return what was told since the last time, oldest first of each."""
        found = []
        for raw in self._consumer.consume(_BATCH, 0.0) if self._next else ():
            error = raw.error()
            if error is None:
                message = to_message(raw)
                self._next[message.topic] = message.offset + 1
                if point := decode_or_none(message.value, MetricsPoint):
                    found.append(point)
            elif error.code() in OUT_OF_RANGE:
                self._next[str(raw.topic())] = OFFSET_END
                self._assign()
                break
        return found

    def ends(self, places: Collection[tuple[str, int]]) -> Ends:
        """Return where partitions end for readers; waits for the brokers, not long."""
        found: Ends = {}
        if not places:
            return found
        (asked,) = ask_offsets(self._admin, places, _ANSWER_S, STABLE_END)
        for place, future in asked.items():
            try:
                found[place] = int(future.result(2 * _ANSWER_S).offset)
            except (KafkaException, TimeoutError) as exc:
                _log.debug("%s: %s", place, exc)
        return found

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def _assign(self) -> None:
        self._consumer.assign(
            [TopicPartition(topic, 0, at) for topic, at in self._next.items()]
        )
