"""The replay topic read while it grows: the learner deletes what it no longer needs."""

from __future__ import annotations

import threading

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from infra.kafka.clients import make_consumer
from infra.kafka.reading import to_message
from infra.settings import Settings
from schemas.topics import REPLAY, topic_name
from tests.chaos.collecting import logged
from tests.chaos.evidence import Address, Evidence, Logged

_POLL_S = 0.5


class Following(threading.Thread):
    """Remembers every record of the replay topic, until told to stop."""

    def __init__(
        self, settings: Settings, name: str, run_id: str, partitions: int
    ) -> None:
        super().__init__(name="following", daemon=True)
        self._settings, self._run_id = settings, run_id
        self._topic, self._partitions = topic_name(REPLAY, name), partitions
        self._found: dict[Address, Logged] = {}
        self._over = threading.Event()

    def run(self) -> None:
        consumer = make_consumer(
            self._settings, group=None, client_id=f"follow-{self._topic}"
        )
        consumer.assign(
            [
                TopicPartition(self._topic, p, OFFSET_BEGINNING)
                for p in range(self._partitions)
            ]
        )
        while not self._over.is_set():
            for raw in consumer.consume(200, _POLL_S):
                if raw.error() is None:
                    found = logged(to_message(raw), self._run_id)
                    self._found[found.address] = found
        consumer.close()

    def finish(self) -> None:
        """End."""
        self._over.set()
        self.join(120.0)

    def add_to(self, evidence: Evidence) -> None:
        """Put what a fresh reader no longer finds before what it does."""
        fresh = {each.address for each in evidence.replay}
        gone = [each for at, each in self._found.items() if at not in fresh]
        evidence.replay = sorted(evidence.replay + gone, key=lambda each: each.address)
