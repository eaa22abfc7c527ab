"""What was told of trouble, each thing once; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from infra.monitoring.role_views import RoleView, Told
from rollstream.ages import age

_WELL = ("running", "stopped")


@dataclass(frozen=True)
class Alert:
    """An alert, however often it was told.

    Attributes:
        told: the newest time.
        count: how often.
    """

    told: Told
    count: int = 1

    def __str__(self) -> str:
        """Return it in a line; of any text."""
        told, times = self.told, f", {self.count} times" * (self.count > 1)
        return (
            f"alert {age(told.age_ms)} ago{times}  {told.role}/{told.index}  "
            f"{told.kind}: {told.reason}"
        )


def each_once(alerts: Iterable[Told]) -> list[Alert]:
    """Return alerts, newest first, without those that say the same again.

    Args:
        alerts: newest first.
    """
    found: dict[Told, Alert] = {}
    for told in alerts:
        same = replace(told, age_ms=0)
        before = found.get(same)
        found[same] = replace(before, count=before.count + 1) if before else Alert(told)
    return list(found.values())


def troubles(role: RoleView, shown: Sequence[Alert]) -> list[str]:
    """Return why a role failed last, and what was told of it last.

    Nothing of one of which all is well, and nothing that an alert says.

    Args:
        role: the process.
        shown: the alerts that are shown, of all roles.
    """
    who, told, lines = f"{role.role}/{role.index}", role.told, []
    reasons = [
        alert.told.reason
        for alert in shown
        if (alert.told.role, alert.told.index) == (role.role, role.index)
    ]
    is_alert = told is not None and told in (alert.told for alert in shown)
    if told is not None and not is_alert:
        ago = f"{age(told.age_ms)} ago"
        lines.append(f"{who}: {told.severity} {ago}, {told.kind}: {told.reason}")
        reasons.append(told.reason)
    is_ill = bool(role.restarts) or role.state not in _WELL
    if role.reason and is_ill and not any(role.reason in each for each in reasons):
        lines.insert(0, f"{who}: {role.state}: {role.reason}")
    return lines
