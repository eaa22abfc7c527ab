"""Alerting with a sender, a lag and a clock that are played."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from infra.control.desired import PublishedExperiment
from infra.errors import DeliveryError
from infra.monitoring import alerting
from infra.monitoring.alert_rules import AlertKey
from infra.monitoring.alert_states import Alert, Edge
from infra.monitoring.alerting import Alerting
from infra.monitoring.lag.model import LagReport, Place
from infra.monitoring.progress import Progress
from infra.settings import Settings
from schemas.experiment import from_values
from schemas.records import MetricsPoint
from tests.unit.lag_samples import group, partition
from tests.unit.test_experiment import values

# What the clock says all the time: how long a test takes is no part of it.
EPOCH_S = 1_790_000_000.0
NAME, RUN_ID = "cartpole-dqn", "r1"
GROUP = f"rollstream.{NAME}.processor"
STALLED = AlertKey("stalled", "processor")


def published(offset: int = 7, **changes: str) -> PublishedExperiment:
    return PublishedExperiment(from_values(values(**changes)), RUN_ID, offset, "agents")


def named(name: str, offset: int = 7) -> PublishedExperiment:
    return published(offset, metadata__name=name)


def report(
    state: Any = "OK", *, problem: str = "", lag: int = 0, of_group: str = ""
) -> LagReport:
    found = group(partition(0, state, lag=lag), name=GROUP, problem=of_group)
    return LagReport(EPOCH_S, (found,), problem=problem)


class PlayedSender:
    """What is told, instead of topics."""

    def __init__(self, *_: object) -> None:
        self.told: list[tuple[str, bool, str]] = []
        self.published: list[Mapping[str, float]] = []
        self.is_away = False
        self.tries = 0
        self.while_telling: Callable[[], None] = lambda: None

    def tell(self, published: PublishedExperiment, edge: Edge) -> int:
        self.tries += 1
        self.while_telling()
        if self.is_away:
            raise DeliveryError("the brokers are away")
        self.told.append((edge.key.name, edge.is_on, edge.reason))
        return 1

    def publish(self, _: PublishedExperiment, values: Mapping[str, float]) -> None:
        self.published.append(values)

    def close(self) -> None:
        pass


class Played(Alerting):
    """Looks when it is told to, at what it is given, by a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.may = True
        self.progress = Progress(RUN_ID)
        super().__init__(Settings(), epoch=3, may_act=lambda: self.may)
        self.sender: Any = self._sender
        self.looked_at: Mapping[int, float] = {}
        monitor: Any = self._monitor
        monitor.window = self._window

    def _window(self, place: Place) -> Any:
        at_s = self.looked_at.get(place.partition)
        return at_s and SimpleNamespace(newest=SimpleNamespace(at_s=at_s))

    def see(self, spec: PublishedExperiment) -> None:
        follower: Any = SimpleNamespace(
            progress=self.progress, standings={}, rows_per_record={}
        )
        self.observe(spec, follower)

    def learner(self, **told: float) -> None:
        self.progress.add(MetricsPoint(NAME, RUN_ID, "learner", 0, 1, 1, told))

    def look(self, spec: PublishedExperiment, found: LagReport, times: int = 1) -> None:
        for _ in range(times):
            self.now_s += 1.0
            self.see(spec)
            self._pass(found)

    @property
    def edges(self) -> list[tuple[str, bool]]:
        return [(name, is_on) for name, is_on, _ in self.sender.told]


def playing(monkeypatch: pytest.MonkeyPatch, on: list[Alert]) -> Played:
    """Return one that is played; ``on``: what the events say."""
    monkeypatch.setattr(alerting, "AlertSender", PlayedSender)
    monkeypatch.setattr(alerting, "read_alerts", lambda *_: on)
    found = Played()
    clock = SimpleNamespace(monotonic=lambda: found.now_s, time=lambda: EPOCH_S)
    monkeypatch.setattr(alerting, "time", clock)
    return found


def not_read(
    monkeypatch: pytest.MonkeyPatch, errors: Mapping[str, Exception]
) -> list[str]:
    """Let the alerts of some not be read; return whose were asked for."""
    asked: list[str] = []

    def read(_: Settings, name: str, *__: object) -> list[Alert]:
        asked.append(name)
        if name in errors:
            raise errors[name]
        return []

    monkeypatch.setattr(alerting, "read_alerts", read)
    return asked
