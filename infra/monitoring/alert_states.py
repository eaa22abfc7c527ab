"""How rules stand, again and again -> alerts that go on and off; pure.

What is on is in the experiment's topic of events, as ``alert-on`` and ``alert-off``:
whoever watches over it next goes on from there, and nobody is told twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infra.monitoring.alert_rules import (
    ALERT_NAMES,
    GROUP_ROLES,
    AlertKey,
    Standing,
)
from infra.monitoring.role_views import Told

# For how long all has to be well before an alert is over.
CLEAR_S = 2.0


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that is on.

    Attributes:
        key: which.
        since_ms: when it went on, milliseconds since the epoch.
        reason: of that time.
    """

    key: AlertKey
    since_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class Edge:
    """An alert that goes on, or off; ``since_ms``: when it went on, unless now."""

    key: AlertKey
    is_on: bool
    reason: str
    since_ms: int | None = None

    @property
    def text(self) -> str:
        """Return the reason of the event that tells of it: ``key_of`` reads it."""
        return f"{self.key.name}: {self.reason}"


def key_of(role: str, text: str) -> AlertKey | None:
    """Return which alert an event's role and reason mean; None: none that there is.

    Anybody may write to the topic.
    """
    told = text.partition(":")[0]
    if role not in GROUP_ROLES:
        return None
    return next((AlertKey(n, role) for n in ALERT_NAMES if n == told), None)


def alerts_of(on: Iterable[Told], now_ms: int) -> list[Alert]:
    """Return the alerts that events tell of; ``on``: as `alerts_on` has folded them."""
    found = []
    for told in on:
        key, reason = key_of(told.role, told.reason), told.reason.partition(":")[2]
        if key is not None:
            found.append(Alert(key, now_ms - told.age_ms, reason.strip()))
    return found


@dataclass
class _Timer:
    """Since when a rule has been broken, or well, without a break."""

    broken_since_s: float | None = None
    well_since_s: float | None = None

    def see(self, standing: Standing | None, now_s: float) -> None:
        if standing is None or not standing.is_broken:
            self.broken_since_s = None
        elif self.broken_since_s is None:
            self.broken_since_s = now_s
        if standing is None or not standing.is_well:
            self.well_since_s = None
        elif self.well_since_s is None:
            self.well_since_s = now_s


class Alerts:
    """The alerts of one run, from one look to the next."""

    def __init__(self, on: Iterable[Alert] = ()) -> None:
        """Begin with those that are on."""
        self._on = {alert.key: alert for alert in on}
        self._timers: dict[AlertKey, _Timer] = {}

    @property
    def on(self) -> tuple[Alert, ...]:
        """Those that are on, newest first."""
        return tuple(
            sorted(self._on.values(), key=lambda each: (-each.since_ms, each.key))
        )

    def step(self, found: Mapping[AlertKey, Standing], now_s: float) -> list[Edge]:
        """Return what is to go on or off; the same again until it is ``told``.

        A rule that is broken for as long as it says goes on, and off once it has been
        well for CLEAR_S. One of which nothing is known stays as it is, and begins to
        count anew when something is.

        Args:
            found: how rules stand now.
            now_s: of a clock that never goes back.
        """
        edges = []
        for key in sorted({*found, *self._timers}):
            standing = found.get(key)
            timer = self._timers.setdefault(key, _Timer())
            timer.see(standing, now_s)
            if standing is not None:
                edges += self._edge(key, standing, timer, now_s)
        return edges

    def end(self, reason: str) -> list[Edge]:
        """Return what is to go off as nothing is watched over any more."""
        return [
            Edge(key, False, reason, alert.since_ms)
            for key, alert in sorted(self._on.items())
        ]

    def told(self, edge: Edge, at_ms: int) -> None:
        """Note that an edge is in the log since ``at_ms``."""
        if edge.is_on:
            self._on[edge.key] = Alert(edge.key, at_ms, edge.reason)
        else:
            self._on.pop(edge.key, None)

    def _edge(
        self, key: AlertKey, standing: Standing, timer: _Timer, now_s: float
    ) -> list[Edge]:
        alert = self._on.get(key)
        broken, well = timer.broken_since_s, timer.well_since_s
        if alert is None and broken is not None:
            if now_s - broken >= standing.for_s:
                return [Edge(key, True, standing.reason)]
        elif alert is not None and well is not None and now_s - well >= CLEAR_S:
            return [Edge(key, False, standing.reason, alert.since_ms)]
        return []
