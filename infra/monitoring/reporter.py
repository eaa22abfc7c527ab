"""A role's metrics, episodes and events -> topics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from infra.clock import now_ms
from infra.kafka.delivery import Sender
from infra.monitoring.event_kinds import EventKind, Severity
from infra.monitoring.experiment_events import log_event, make_event
from schemas.codec import encode
from schemas.records import EpisodesFinished, Evaluation, MetricsPoint, Position
from schemas.topics import EVENTS, METRICS

if TYPE_CHECKING:
    from infra.control.role import RoleContext


class Reporter:
    """Publishes what one role process has to say of itself.

    Attributes:
        said_at_s: when the last metrics were published, or a beat; monotonic.
    """

    def __init__(self, sender: Sender, context: RoleContext, incarnation: int) -> None:
        self._sender = sender
        self._context = context
        self._incarnation = incarnation
        self.said_at_s = time.monotonic()

    def metrics(
        self, values: Mapping[str, float], positions: tuple[Position, ...] = ()
    ) -> None:
        """Publish counters, gauges and consumer positions."""
        self.said_at_s = time.monotonic()
        self.send(self._point(values, positions))

    def beat(self) -> None:
        """Say that the process lives, and nothing else; never waits, never fails."""
        self.said_at_s = time.monotonic()
        topic, key = self._context.topic(METRICS), self._context.member_key
        self._sender.try_send(topic, encode(self._point({}, ())), key)

    def send(self, record: MetricsPoint | EpisodesFinished | Evaluation) -> None:
        """Publish a record to the experiment's metrics."""
        self._sender.send(
            self._context.topic(METRICS), encode(record), self._context.member_key
        )

    def _point(
        self, values: Mapping[str, float], positions: tuple[Position, ...]
    ) -> MetricsPoint:
        context = self._context
        return MetricsPoint(
            experiment=context.experiment.name,
            run_id=context.run_id,
            role=context.role,
            index=context.index,
            incarnation=self._incarnation,
            produced_at_ms=now_ms(),
            values=dict(values),
            positions=positions,
        )

    def event(self, kind: EventKind, severity: Severity, reason: str) -> None:
        """Publish something that a person should know, and log it."""
        log_event(kind, severity, reason)
        context = self._context
        event = make_event(
            context.experiment.name,
            context.run_id,
            context.role,
            context.index,
            kind,
            severity,
            reason,
        )
        self._sender.send(context.topic(EVENTS), encode(event), context.member_key)
