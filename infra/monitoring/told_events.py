"""An experiment's events -> the warnings and alerts that still count."""

from __future__ import annotations

from collections.abc import Iterable

from infra.monitoring.alerts_on import ALERT_KINDS, AlertsOn
from infra.monitoring.event_log import EventLog, LoggedEvent
from infra.monitoring.role_views import Told
from infra.settings import Settings


def read_told(settings: Settings, name: str, run_id: str, now: int) -> tuple[Told, ...]:
    """Return a run's warnings and alerts, newest first; those that are over not."""
    return told_of(EventLog(settings, name).read(), run_id, now)


def told_of(events: Iterable[LoggedEvent], run_id: str, now: int) -> tuple[Told, ...]:
    """Return the same of events, oldest first; pure."""
    alerts, others = AlertsOn(run_id), []
    for logged in events:
        event = logged.event
        alerts.add(event, logged.at_ms)
        is_ours = event.run_id == run_id and event.kind not in ALERT_KINDS
        if is_ours and event.severity != "info":
            others.append(Told.of(event, logged.at_ms, now))
    found = (*alerts.on(now / 1000), *reversed(others))
    return tuple(sorted(found, key=lambda told: told.age_ms))
