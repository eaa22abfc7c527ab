"""Something that a person should know -> an event of an experiment, and our log."""

from __future__ import annotations

import logging

from infra.clock import now_ms
from infra.monitoring.event_kinds import EventKind, Severity
from schemas.records import Event

MAX_REASON = 4096
"""Characters of a reason; an environment's message may be of any length."""

_LOG_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "alert": logging.ERROR}
_log = logging.getLogger("rollstream")


def make_event(
    experiment: str,
    run_id: str,
    role: str,
    index: int,
    kind: EventKind,
    severity: Severity,
    reason: str,
) -> Event:
    """Return an event of now.

    Args:
        experiment: its name.
        run_id: the run in which it happened.
        role: whom it is about; ``experiment`` for all of it.
        index: within the role; 0 for the experiment.
        kind: one of `infra.monitoring.event_kinds.KINDS`.
        severity: ``alert`` when somebody has to look.
        reason: why; MAX_REASON of it is kept.
    """
    return Event(
        experiment=experiment,
        run_id=run_id,
        role=role,
        index=index,
        kind=kind,
        severity=severity,
        # An exception's text may hold what no encoding has.
        reason=reason[:MAX_REASON].encode(errors="replace").decode(),
        produced_at_ms=now_ms(),
    )


def log_event(what: str, severity: Severity, reason: str) -> None:
    """Log an event at the level of its severity."""
    _log.log(_LOG_LEVELS[severity], "%s: %s", what, reason)
