"""Records of a metrics topic -> what one run has told so far."""

from __future__ import annotations

import logging

from infra.kafka.reading import Message
from infra.monitoring.lag.clock_gap import ClockGap
from infra.monitoring.lag.standings import Standings
from infra.monitoring.metric_records import read_metric
from infra.monitoring.progress import Progress
from schemas.errors import SchemaError
from schemas.records import MetricsPoint
from schemas.role_parts import ROLES

MAX_PROCESSES = 1_024
"""Of each of hundreds of runs."""

_ROLES = frozenset(ROLES)
_log = logging.getLogger("rollstream.metrics")

Who = tuple[str, int]


class RunMetrics:
    """Folds the metrics of one run; of what others write, only so much is kept.

    Attributes:
        progress: how far the run is.
        standings: where its roles stand in what they read.
        heard_at_ms: when each process was last heard of, by the broker's clock.
    """

    def __init__(
        self,
        experiment: str,
        progress: Progress,
        most: int = MAX_PROCESSES,
        clock: ClockGap | None = None,
    ) -> None:
        """Begin with the progress of the run that is meant.

        Args:
            experiment: whose run it is.
            progress: to add to.
            most: of so many processes something is kept.
            clock: of the brokers; shared by who hears of many runs.
        """
        self.progress = progress
        self.standings = Standings(experiment, clock)
        self.heard_at_ms: dict[Who, int] = {}
        self._of = experiment, progress.run_id
        self._most = most
        self._has_warned = False

    def hear(self, message: Message) -> MetricsPoint | None:
        """Take in a record; what is none, or of another run, is passed over.

        Returns:
            the record, if a process of the run tells of itself in it.
        """
        try:
            record = read_metric(message.value)
        except SchemaError as exc:
            self._warn(message, exc)
            return None
        if (record.experiment, record.run_id) != self._of:
            return None
        if not isinstance(record, MetricsPoint):
            self.progress.add(record)
            return None
        if not self._is_of_process(record):
            return None
        self.heard_at_ms[record.role, record.index] = message.timestamp_ms
        self.progress.add(record)
        self.standings.add(record, message.timestamp_ms / 1000)
        return record

    def _is_of_process(self, point: MetricsPoint) -> bool:
        has_room = len(self.heard_at_ms) < self._most
        is_known = (point.role, point.index) in self.heard_at_ms
        return point.role in _ROLES and (is_known or has_room)

    def _warn(self, message: Message, exc: SchemaError) -> None:
        """Tell of the first: one that writes such a record writes more of them."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s: offset %d is passed over, and others like it: %s",
                message.topic,
                message.offset,
                exc,
            )
