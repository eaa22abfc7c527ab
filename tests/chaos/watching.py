"""Committed offsets and metrics, looked at again and again while faults happen."""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

from infra.errors import RollstreamError
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import watermarks
from infra.monitoring.follow import MetricsFollower
from infra.settings import Settings
from schemas.topics import REPLAY, TRAJECTORIES, group_name, topic_name
from tests.chaos.evidence import Committed

READS = {"processor": TRAJECTORIES, "learner": REPLAY}
_EVERY_S = 0.25
_TIMEOUT_S = 1.0


class Watch(threading.Thread):
    """Samples until told to stop; a broker that is away is no error.

    Attributes:
        samples: committed offsets, in order; only those that changed.
        ends: by role, the newest known ends of what it reads.
        committed: by role and partition, the newest sample.
    """

    def __init__(
        self, settings: Settings, name: str, run_id: str, partitions: int
    ) -> None:
        super().__init__(name="watch", daemon=True)
        self.samples: list[Committed] = []
        self.ends: dict[str, dict[int, int]] = {role: {} for role in READS}
        self.committed: dict[tuple[str, int], int] = {}
        self.follower: MetricsFollower | None = None
        self._settings, self._name, self._run_id = settings, name, run_id
        self._partitions = partitions
        self._over = threading.Event()

    def run(self) -> None:
        consumers = {role: self._consumer(role) for role in READS}
        while not self._over.wait(_EVERY_S):
            with suppress(KafkaException, RollstreamError):
                for role, consumer in consumers.items():
                    self._sample(role, consumer)
                self._follow()
        for consumer in consumers.values():
            consumer.close()
        if self.follower is not None:
            with suppress(KafkaException, RollstreamError):
                self.follower.read_to_end(5.0)
            self.follower.close()

    def finish(self) -> None:
        """Take in the last metrics and end."""
        self._over.set()
        self.join(120.0)

    def _consumer(self, role: str) -> Consumer:
        return make_consumer(
            self._settings,
            group=group_name(self._name, role),
            client_id=f"watch-{role}",
            traffic=Traffic.CONTROL,
        )

    def _follow(self) -> None:
        if self.follower is None:
            self.follower = MetricsFollower(self._settings, self._name, self._run_id)
        self.follower.poll(0.01)

    def _sample(self, role: str, consumer: Consumer) -> None:
        topic = topic_name(READS[role], self._name)
        wanted = [TopicPartition(topic, p) for p in range(self._partitions)]
        found = consumer.committed(wanted, timeout=_TIMEOUT_S)
        at_s = time.time()
        for each in found:
            if each.error is not None:
                continue
            key = role, each.partition
            # An offset that was there and is none any more has fallen, too.
            offset = max(each.offset, 0)
            if offset != self.committed.get(key, 0):
                self.samples.append(Committed(at_s, role, each.partition, offset))
            self.committed[key] = offset
        for p in range(self._partitions):
            _, end = watermarks(consumer, topic, p, _TIMEOUT_S)
            self.ends[role][p] = end


def ends_of(settings: Settings, name: str, role: str, partitions: int) -> list[int]:
    """Ask for the ends of what a role reads, now."""
    topic = topic_name(READS[role], name)
    consumer = make_consumer(settings, group=None, client_id="ends")
    with closing(consumer):
        return [watermarks(consumer, topic, p)[1] for p in range(partitions)]
