"""What whoever replays says of it: a Member, metrics and events of a replayer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Self

from archive.progress_log import Standing
from archive.recorded import SourceInfo
from archive.sending import Counts
from infra.control.members import register
from infra.control.role import RoleContext, StopRequest
from infra.kafka.clients import Traffic, make_producer
from infra.kafka.delivery import Sender
from infra.monitoring.event_kinds import EventKind, Severity
from infra.monitoring.heartbeat import Heartbeat
from infra.monitoring.reporter import Reporter
from schemas.records import Position
from schemas.topics import TRAJECTORIES

REPORT_S = 1.0
_FLUSH_S = 5.0


class ReplayReport:
    """Tells an experiment of what is replayed into it.

    Its Member carries the spaces, so that learners can do without workers.
    """

    def __init__(
        self, context: RoleContext, info: SourceInfo, stop: StopRequest | None = None
    ) -> None:
        """Register.

        Args:
            context: of role ``replayer``, in the target.
            info: whose experience is replayed.
            stop: ends the wait for the brokers.
        """
        self._context = context
        self._counts = Counts()
        self._values = {"replaying": 0.0, "done": 0.0}
        self._positions: tuple[Position, ...] = ()
        self._reported_at_s = 0.0
        self._sender = Sender(
            make_producer(
                context.settings, client_id=context.client_id, traffic=Traffic.CONTROL
            )
        )
        incarnation = register(
            self._sender, context, stop or StopRequest(), env=info.env
        )
        self._reporter = Reporter(self._sender, context, incarnation)
        self._heartbeat = Heartbeat()
        self._heartbeat.begin(self._reporter)

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Say what is known, and no more after that."""
        self.tell()
        self._heartbeat.end()
        self._sender.flush(_FLUSH_S)

    @property
    def is_due(self) -> bool:
        """Whether it is time to tell something."""
        return time.monotonic() - self._reported_at_s >= REPORT_S

    def watch(self, standing: Standing, counts: Counts, may_go: bool = True) -> None:
        """Take note of how far it is; ``may_go``: nobody has paused it."""
        self._counts = counts
        is_at_work = may_go and not counts.waiting and not standing.done
        self.note(
            replaying=float(is_at_work),
            offsets_done=float(standing.num_done),
            offsets=float(standing.total),
        )

    def note(self, **values: float) -> None:
        """Take note of something, and tell it when it is time to."""
        self._values |= values
        if self.is_due:
            self.tell()

    def done(self, ends: Mapping[int, int]) -> None:
        """Tell that all is in the target, whose partitions' records end there."""
        topic = self._context.topic(TRAJECTORIES)
        self._positions = tuple(
            Position(topic, partition, end, end, 0)
            for partition, end in sorted(ends.items())
        )
        self._values |= {"replaying": 0.0, "done": 1.0}
        self.tell()

    def event(self, kind: EventKind, severity: Severity, reason: str) -> None:
        """Tell something that a person should know."""
        self._reporter.event(kind, severity, reason)

    def tell(self) -> None:
        """Publish metrics."""
        self._reported_at_s = time.monotonic()
        counts = self._counts
        counters = {
            "records": counts.records,
            "env_steps": counts.env_steps,
            "blank_steps": counts.blank_steps,
            "bytes": counts.bytes,
            "repeated_records": counts.repeated,
        }
        self._reporter.metrics(self._values | counters, self._positions)
