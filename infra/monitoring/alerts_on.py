"""An experiment's events -> its alerts that are on; pure."""

from __future__ import annotations

from infra.monitoring.role_views import Told
from schemas.records import Event

MAX_ALERTS = 256


class AlertsOn:
    """Folds the events that say that an alert begins or ends, of one run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._on: dict[tuple[str, int, str], tuple[Event, int]] = {}

    def add(self, event: Event, at_ms: int) -> None:
        """Take in an event, appended at a time by the broker's clock."""
        if event.run_id != self._run_id:
            return
        key = event.role, event.index, event.reason.partition(":")[0]
        if event.kind == "alert-off":
            self._on.pop(key, None)
        elif event.kind == "alert-on" and (key in self._on or self._has_room()):
            self._on[key] = event, at_ms

    def on(self, now_s: float) -> tuple[Told, ...]:
        """Return those that are on, newest first."""
        newest_first = sorted(self._on.values(), key=lambda pair: -pair[1])
        return tuple(
            Told(
                kind=event.kind,
                role=event.role,
                index=event.index,
                reason=event.reason,
                age_ms=max(0, int(now_s * 1000) - at_ms),
                severity=event.severity,
            )
            for event, at_ms in newest_first
        )

    def _has_room(self) -> bool:
        return len(self._on) < MAX_ALERTS
