"""Metrics of workers -> how soon each version began to act, and what was fetched."""

from __future__ import annotations

from dataclasses import dataclass

from infra.kafka.whole_topic import WholeTopic
from infra.monitoring.metric_records import metric_or_none
from infra.settings import Settings
from schemas.records import MetricsPoint
from schemas.topics import METRICS, topic_name


@dataclass(frozen=True)
class Reached:
    """What happened between two looks.

    Attributes:
        adoptions_ms: of each worker and version, from its publication until it acted.
        fetched_bytes: of chunks, by all workers together.
    """

    adoptions_ms: tuple[float, ...]
    fetched_bytes: float


class Adoptions:
    """Follows what workers tell once a second.

    Attributes:
        workers: how many versions each has adopted; those that have one.
    """

    def __init__(self, settings: Settings, experiment: str) -> None:
        self.workers: dict[int, float] = {}
        self._adoptions_ms: list[float] = []
        self._fetched_bytes: dict[int, float] = {}
        topic = topic_name(METRICS, experiment)
        self._topic = WholeTopic(settings, topic, "bench-adoptions", lambda: None)

    def poll(self, timeout_s: float) -> None:
        """Take in what has come."""
        for message in self._topic.poll(timeout_s):
            record = metric_or_none(message.value, MetricsPoint)
            if record is not None and record.role == "worker":
                self._take(record)

    def begin(self) -> Reached:
        """Return what has been so far."""
        fetched = sum(self._fetched_bytes.values())
        return Reached(tuple(self._adoptions_ms), fetched)

    def since(self, before: Reached) -> Reached:
        """Return what has been since then."""
        fetched = sum(self._fetched_bytes.values()) - before.fetched_bytes
        return Reached(tuple(self._adoptions_ms[len(before.adoptions_ms) :]), fetched)

    def close(self) -> None:
        """Follow no more."""
        self._topic.close()

    def _take(self, record: MetricsPoint) -> None:
        values, index = record.values, record.index
        adopted = values.get("policies_adopted", 0.0)
        self._fetched_bytes[index] = values.get("policy_fetched_bytes", 0.0)
        if adopted > self.workers.get(index, 0.0):
            self.workers[index] = adopted
            self._adoptions_ms.append(values["policy_adoption_s"] * 1000)
