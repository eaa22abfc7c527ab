"""The metrics topic -> Progress, where roles stand, and how far behind they are."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, TopicPartition

from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import to_message, watermarks
from infra.monitoring.lag import own_groups
from infra.monitoring.lag.model import LagReport, PartitionLag, Place, Standing
from infra.monitoring.lag.monitor import LagMonitor
from infra.monitoring.progress import Progress
from infra.monitoring.run_metrics import RunMetrics
from infra.settings import Settings
from schemas.topics import METRICS, group_name, topic_name

# Enough for an hour of a small experiment; more history is not worth the wait.
HISTORY_RECORDS = 20_000

# As many workers and processors as a spec may ask for, and then some.
MOST_PROCESSES = 25_000

_CLOSE_S = 1.0

# Who reads what: the two groups whose lag decides whether anybody waits.
READS = own_groups.LEARNS

_log = logging.getLogger("rollstream.follow")


class MetricsFollower:
    """Follows one run's metrics from their recent past on."""

    def __init__(
        self,
        settings: Settings,
        experiment: str,
        run_id: str,
        report: Callable[[], LagReport] | None = None,
    ) -> None:
        """Begin some way before the end of what was told.

        Args:
            settings: where the brokers are.
            experiment: whose metrics.
            run_id: which run of it.
            report: what somebody else sees of the lag of its groups; None: looks for
                itself, from when ``lag`` is asked for the first time.
        """
        self.progress = Progress(run_id)
        self._metrics = RunMetrics(experiment, self.progress, MOST_PROCESSES)
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
        self._settings = settings
        self._report = report
        self._monitor: LagMonitor | None = None

    @property
    def heard_at_ms(self) -> Mapping[tuple[str, int], int]:
        """When each process was last heard of, by the broker's clock."""
        return self._metrics.heard_at_ms

    @property
    def standings(self) -> Mapping[Place, Standing]:
        """Where the roles that read say that they stand."""
        return self._metrics.standings.by_place

    @property
    def rows_per_record(self) -> dict[str, float]:
        """Steps of environments in a record, by the group that reads it."""
        return self._metrics.standings.rows_per_record

    @property
    def lag(self) -> dict[str, int | None]:
        """Records that wait to be handled, by role; None: not known, or not of all."""
        report = self._report() if self._report is not None else self._look()
        return {
            role: total_lag(report, group_name(self._experiment, role))
            for role in READS
        }

    def _look(self) -> LagReport:
        """Return what was seen last; most that follow metrics never ask."""
        if self._monitor is None:
            self._monitor = LagMonitor(
                self._settings,
                wanted=[group_name(self._experiment, role) for role in READS],
                standings=lambda: self.standings,
            )
            self._monitor.start()
        return self._monitor.report

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
            self._metrics.hear(record)

    def close(self) -> None:
        """Look no more, and close the consumer."""
        if self._monitor is not None:
            # Brokers that are away must not hold up whoever waits for Ctrl-C.
            self._monitor.close(_CLOSE_S)
        self._consumer.close()


def total_lag(report: LagReport, group: str) -> int | None:
    """Return a group's lag; None where that of one of its partitions is not known."""
    seen = report.group(group)
    if report.problem or seen is None or seen.problem or not seen.partitions:
        return None
    each = [_lag_of(partition) for partition in seen.partitions]
    return sum(filter(None, each)) if None not in each else None


def _lag_of(partition: PartitionLag) -> int | None:
    if partition.verdict.state == "EMPTY":
        return 0  # also where nobody has told or committed anything yet
    # What stands in another log has no lag in this one.
    return None if partition.verdict.state == "LOST" else partition.lag
