"""Something that a person should know -> the events of an experiment, and our log."""

from __future__ import annotations

import logging

from infra.clock import now_ms
from infra.kafka.delivery import Sender
from infra.monitoring.event_kinds import EventKind, Severity
from schemas.codec import encode
from schemas.records import Event
from schemas.topics import EVENTS, topic_name

MAX_REASON = 4096
"""Characters of a reason; an environment's message may be of any length."""

_LOG_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "alert": logging.ERROR}
_log = logging.getLogger("rollstream")


class EventWriter:
    """Publishes events about any role of one run, by whoever looks after it.

    An agent or a leader needs nothing but a sender; a role process speaks of itself by
    `infra.monitoring.reporter.Reporter`.
    """

    def __init__(self, sender: Sender, experiment: str, run_id: str) -> None:
        self._sender = sender
        self._experiment = experiment
        self._run_id = run_id

    def event(
        self, role: str, index: int, kind: EventKind, severity: Severity, reason: str
    ) -> None:
        """Publish an event, and log whom it is about.

        Args:
            role: whom it is about; ``experiment`` for all of it.
            index: within the role; 0 for the experiment.
            kind: one of `infra.monitoring.event_kinds.KINDS`.
            severity: ``alert`` when somebody has to look.
            reason: why; all of it is logged, MAX_REASON of it published.

        Raises:
            DeliveryError: an earlier record of the sender was refused for good.
        """
        log_event(f"{self._experiment} {role}/{index} {kind}", severity, reason)
        self.publish(role, index, kind, severity, reason)

    def publish(
        self, role: str, index: int, kind: EventKind, severity: Severity, reason: str
    ) -> None:
        """Publish an event only; raises DeliveryError."""
        event = Event(
            experiment=self._experiment,
            run_id=self._run_id,
            role=role,
            index=index,
            kind=kind,
            severity=severity,
            # An exception's text may hold what no encoding has.
            reason=reason[:MAX_REASON].encode(errors="replace").decode(),
            produced_at_ms=now_ms(),
        )
        topic = topic_name(EVENTS, self._experiment)
        self._sender.send(topic, encode(event), f"{role}/{index}")


def log_event(what: str, severity: Severity, reason: str) -> None:
    """Log an event at the level of its severity."""
    _log.log(_LOG_LEVELS[severity], "%s: %s", what, reason)
