"""A role's metrics, episodes and events -> topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from infra.clock import now_ms
from infra.kafka.delivery import Sender
from schemas.codec import encode
from schemas.records import EpisodesFinished, Evaluation, Event, MetricsPoint, Position
from schemas.topics import EVENTS, METRICS

if TYPE_CHECKING:
    from infra.control.role import RoleContext

Severity = Literal["info", "warning", "alert"]

_LOG_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "alert": logging.ERROR}
_log = logging.getLogger("rollstream")


class Reporter:
    """Publishes what one role process has to say of itself."""

    def __init__(self, sender: Sender, context: RoleContext, incarnation: int) -> None:
        self._sender = sender
        self._context = context
        self._incarnation = incarnation

    def metrics(
        self, values: Mapping[str, float], positions: tuple[Position, ...] = ()
    ) -> None:
        """Publish counters, gauges and consumer positions."""
        context = self._context
        self.send(
            MetricsPoint(
                experiment=context.experiment.name,
                run_id=context.run_id,
                role=context.role,
                index=context.index,
                incarnation=self._incarnation,
                produced_at_ms=now_ms(),
                values=dict(values),
                positions=positions,
            )
        )

    def send(self, record: MetricsPoint | EpisodesFinished | Evaluation) -> None:
        """Publish a record to the experiment's metrics."""
        self._sender.send(
            self._context.topic(METRICS), encode(record), self._context.member_key
        )

    def event(self, kind: str, severity: Severity, reason: str) -> None:
        """Publish something that a person should know, and log it."""
        context = self._context
        _log.log(_LOG_LEVELS[severity], "%s: %s", kind, reason)
        event = Event(
            experiment=context.experiment.name,
            run_id=context.run_id,
            role=context.role,
            index=context.index,
            kind=kind,
            severity=severity,
            reason=reason[:4096],
            produced_at_ms=now_ms(),
        )
        self._sender.send(context.topic(EVENTS), encode(event), context.member_key)
