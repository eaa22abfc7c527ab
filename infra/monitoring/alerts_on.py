"""An experiment's events -> its alerts that are on; pure."""

from __future__ import annotations

from dataclasses import replace

from infra.monitoring.role_views import Told
from schemas.records import Event

MAX_ALERTS = 256

MAX_REASON, MAX_ROLE = 2_000, 64
"""Characters that are kept of them."""

ALERT_KINDS = ("alert-on", "alert-off")
"""Kinds of events that say that an alert begins, and that it ends."""


class AlertsOn:
    """Folds the events that say that an alert begins or ends, of one run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._on: dict[tuple[str, int, str], tuple[Event, int]] = {}

    def add(self, event: Event, at_ms: int) -> None:
        """Take in an event, appended at a time by the broker's clock."""
        if event.run_id != self._run_id or event.kind not in ALERT_KINDS:
            return
        event = replace(
            event,
            role=event.role[:MAX_ROLE],
            severity=event.severity[:MAX_ROLE],
            reason=event.reason[:MAX_REASON],
        )
        key = event.role, event.index, event.reason.partition(":")[0]
        # Told again it is the newest. What is of no severity is no alert.
        self._on.pop(key, None)
        is_on = event.kind == "alert-on" and event.severity != "info"
        if is_on and len(self._on) < MAX_ALERTS:
            self._on[key] = event, at_ms

    def on(self, now_s: float) -> tuple[Told, ...]:
        """Return those that are on, newest first."""
        now = round(now_s * 1000)
        last_first = reversed(self._on.values())
        newest_first = sorted(last_first, key=lambda pair: -pair[1])
        return tuple(Told.of(event, at_ms, now) for event, at_ms in newest_first)
