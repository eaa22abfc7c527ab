"""The metrics topic -> Progress, and the lag of the two consumer groups."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from infra.errors import RollstreamError
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import Message, to_message, watermarks
from infra.monitoring.progress import Progress
from infra.settings import Settings
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.records import EpisodesFinished, Evaluation, MetricsPoint, Position
from schemas.topics import METRICS, REPLAY, TRAJECTORIES, Topic, topic_name

# Enough for an hour of a small experiment; more history is not worth the wait.
HISTORY_RECORDS = 20_000
LAG_INTERVAL_S = 1.0
LAG_TIMEOUT_S = 1.0

# Who reads what: the two groups whose lag decides whether anybody waits.
READS = {"processor": TRAJECTORIES, "learner": REPLAY}

_log = logging.getLogger("rollstream.follow")


class MetricsFollower:
    """Follows one run's metrics from their recent past on."""

    def __init__(self, settings: Settings, experiment: str, run_id: str) -> None:
        self.progress = Progress(run_id)
        self.lag: dict[str, int | None] = dict.fromkeys(READS)
        # When each process was last heard of, by the broker's clock.
        self.heard_at_ms: dict[tuple[str, int], int] = {}
        self._experiment = experiment
        self._consumer: Consumer = make_consumer(
            settings,
            group=None,
            client_id=f"{experiment}-follow",
            traffic=Traffic.CONTROL,
        )
        self._topic = topic_name(METRICS, experiment)
        first, end = watermarks(self._consumer, self._topic, 0)
        start = max(first, end - HISTORY_RECORDS)
        self._consumer.assign([TopicPartition(self._topic, 0, start)])
        self._next_offset = start
        self._lag_at_s = 0.0

    def read_to_end(self, timeout_s: float = 30.0) -> None:
        """Take in all that is there now; gives up after ``timeout_s``.

        Raises:
            KafkaUnavailable: the brokers do not say where the end is.
        """
        deadline_s = time.monotonic() + timeout_s
        _, end = watermarks(self._consumer, self._topic, 0, timeout_s)
        while self._next_offset < end and time.monotonic() < deadline_s:
            self.poll(0.1)

    def poll(self, timeout_s: float) -> None:
        """Take in what has arrived; wait at most ``timeout_s`` for the first."""
        for message in self._consumer.consume(1_000, timeout_s):
            if message.error():
                _log.warning("%s: %s", self._topic, message.error())
                continue
            record = to_message(message)
            self._next_offset = record.offset + 1
            self._take(record)
        if time.monotonic() - self._lag_at_s >= LAG_INTERVAL_S:
            self._lag_at_s = time.monotonic()
            self.lag = {
                role: self._lag_of(role, topic) for role, topic in READS.items()
            }

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _take(self, message: Message) -> None:
        try:
            record: Any = decode(
                message.value, MetricsPoint, EpisodesFinished, Evaluation
            )
        except SchemaError as exc:
            _log.warning("%s: %s", self._topic, exc)
            return
        if isinstance(record, MetricsPoint) and record.run_id == self.progress.run_id:
            self.heard_at_ms[record.role, record.index] = message.timestamp_ms
        self.progress.add(record)

    def _lag_of(self, role: str, topic: Topic) -> int | None:
        """Records between a role's positions and the log's end; None: unknown."""
        positions = self.progress.positions(role)
        name = topic_name(topic, self._experiment)
        try:
            return total_lag([self._behind(name, each) for each in positions])
        except RollstreamError:
            return None

    def _behind(self, name: str, position: Position) -> int | None:
        # A broker that is away must not hold up whoever waits for Ctrl-C.
        _, end = watermarks(self._consumer, name, position.partition, LAG_TIMEOUT_S)
        return lag_of(position.position, end)


def total_lag(each: Sequence[int | None]) -> int | None:
    """Return the sum of partitions' lags; None where one is not known, or none is."""
    return sum(filter(None, each)) if each and None not in each else None


def lag_of(position: int, end: int) -> int | None:
    """Return how many offsets are between; None: the position is of another log.

    Positions are read before ends, so one beyond the end was taken from a topic that
    was deleted since.
    """
    return end - position if position <= end else None
