"""Who is watched over, what is told of them, and when nothing is; all is played."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from infra.control.desired import PublishedExperiment
from infra.errors import DeliveryError
from infra.monitoring import alerting
from infra.monitoring.alert_events import payload
from infra.monitoring.alert_rules import AlertKey
from infra.monitoring.alert_states import Alert, Edge
from infra.monitoring.alerting import RECOVERY_S, Alerting
from infra.monitoring.lag.model import NO_REPORT, LagReport
from infra.monitoring.progress import Progress
from infra.settings import Settings
from schemas.experiment import from_values
from schemas.records import MetricsPoint
from tests.unit.lag_samples import group, partition
from tests.unit.test_experiment import values

NAME, RUN_ID = "cartpole-dqn", "r1"
GROUP = f"rollstream.{NAME}.processor"
STALLED = AlertKey("stalled", "processor")


def published(offset: int = 7, **changes: str) -> PublishedExperiment:
    return PublishedExperiment(from_values(values(**changes)), RUN_ID, offset, "agents")


def report(state: Any = "OK", *, problem: str = "", lag: int = 0) -> LagReport:
    found = group(partition(0, state, lag=lag), name=GROUP)
    return LagReport(time.time(), (found,), problem=problem)


class PlayedSender:
    """What is told, instead of topics."""

    def __init__(self, *_: object) -> None:
        self.told: list[tuple[str, bool, str]] = []
        self.published: list[Mapping[str, float]] = []
        self.is_away = False
        self.tries = 0

    def tell(self, published: PublishedExperiment, edge: Edge) -> int:
        self.tries += 1
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


@pytest.fixture
def on() -> list[Alert]:
    """What the events say is on already."""
    return []


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, on: list[Alert]) -> Iterator[Played]:
    monkeypatch.setattr(alerting, "AlertSender", PlayedSender)
    monkeypatch.setattr(alerting, "read_alerts", lambda *_: on)
    found = Played()
    clock = SimpleNamespace(monotonic=lambda: found.now_s, time=time.time)
    monkeypatch.setattr(alerting, "time", clock)
    yield found


def test_a_group_that_stalls_is_told_of_once_and_then_that_it_goes_on(
    played: Played,
) -> None:
    spec = published()
    played.look(spec, report(), 3)
    assert played.edges == []
    played.look(spec, report("STALLED"), 5)
    assert played.edges == [("stalled", True)]
    played.look(spec, report(), 5)
    assert played.edges == [("stalled", True), ("stalled", False)]
    assert played.sender.told[-1][2] == "it does well"


def test_what_is_on_already_is_not_told_again(played: Played, on: list[Alert]) -> None:
    on.append(Alert(STALLED, 5, "of the leader before"))
    played.look(published(), report("STALLED"), 9)
    assert played.edges == []
    played.look(published(), report(), 4)
    assert played.edges == [("stalled", False)]


def test_losses_that_were_left_out_stay_told_of_under_a_new_leader(
    played: Played, on: list[Alert]
) -> None:
    on.append(Alert(AlertKey("nonfinite-loss", "learner"), 5, "3 updates"))
    played.learner(nonfinite_losses=3.0)
    played.look(published(), report(), 50)
    assert played.edges == []
    played.look(published(), report(), 20)
    assert played.edges == [("nonfinite-loss", False)]


def test_a_counter_that_grows_is_told_of_and_one_that_was_there_is_not(
    played: Played,
) -> None:
    played.learner(nonfinite_losses=3.0, updates=1.0)
    played.look(published(), report(), 3)
    assert played.edges == []
    played.learner(nonfinite_losses=4.0, updates=2.0)
    played.look(published(), report(), 3)
    assert played.edges == [("nonfinite-loss", True)]


def test_while_the_brokers_are_away_and_just_after_nobody_is_stalled(
    played: Played,
) -> None:
    spec = published()
    played.look(spec, report("STALLED", problem="no answer"), 20)
    played.look(spec, report("STALLED"), int(RECOVERY_S) - 1)
    old = replace(report("STALLED"), at_s=time.time() - 60)
    played.look(spec, old, 20)
    played.look(spec, report("STALLED"), int(RECOVERY_S) - 1)
    played.look(spec, NO_REPORT, 3)
    assert played.edges == [] == played.sender.published
    played.look(spec, report("STALLED"), 4)
    assert played.edges == [("stalled", True)]


def test_what_is_not_in_the_log_is_tried_again(played: Played) -> None:
    spec = published()
    played.sender.is_away = True
    played.look(spec, report("STALLED"), 12)
    assert played.edges == [] and 1 < played.sender.tries <= 6
    played.sender.is_away = False
    played.look(spec, report("STALLED"), 5)
    assert played.edges == [("stalled", True)]


def test_one_that_cannot_be_told_of_holds_up_no_other(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PublishedExperiment(
        from_values(values(metadata__name="a-other")), RUN_ID, 8, "agents"
    )

    def read(_: Settings, name: str, *__: object) -> list[Alert]:
        if name == "a-other":
            raise DeliveryError("its topic is gone")
        return []

    monkeypatch.setattr(alerting, "read_alerts", read)
    played.see(other)
    played.look(published(), report("STALLED"), 9)
    assert played.edges == [("stalled", True)]


def test_who_may_not_act_says_nothing(played: Played) -> None:
    played.may = False
    played.look(published(), report("STALLED"), 9)
    assert played.edges == [] == played.sender.published


def test_lag_is_published_every_few_seconds(played: Played) -> None:
    played.look(published(), report(lag=4), 12)
    assert len(played.sender.published) == 3
    assert played.sender.published[0]["lag_records/processor"] == 4.0


def test_nobody_is_told_of_roles_that_end(played: Played) -> None:
    spec = published()
    played.look(spec, report("STALLED"), 2)
    played.over(spec, "the experiment has ended")
    played.look(spec, report("STALLED"), 9)
    assert [each[:2] for each in played.sender.told] == [
        ("stalled", True),
        ("stalled", False),
    ]
    assert played.sender.told[-1][2] == "the experiment has ended"
    # Launched again, it is another spec.
    played.look(published(9), report("STALLED"), 3)
    assert played.edges[2:] == [("stalled", True)]


def test_what_is_stopped_by_a_newer_spec_is_over(played: Played) -> None:
    spec = published()
    played.look(spec, report("STALLED"), 2)
    played.over(published(8, spec__state="stopped"), "the experiment has ended")
    played.keep([])
    played.look(spec, report("STALLED"), 2)
    assert played.edges == [("stalled", True), ("stalled", False)]
    assert played._all() == []


def test_what_is_over_before_it_was_looked_at_is_told_of_at_the_end(
    played: Played, on: list[Alert]
) -> None:
    on.append(Alert(STALLED, 5, "of before"))
    spec = published()
    played.see(spec)
    played.over(spec, "the run has ended")
    played._end()
    assert played.sender.told == [("stalled", False, "the run has ended")]


def test_at_the_end_of_a_term_nothing_is_told(played: Played, on: list[Alert]) -> None:
    on.append(Alert(STALLED, 5, "of before"))
    played.look(published(), report("STALLED"), 2)
    played._end()
    assert played.edges == []


def test_others_are_watched_no_more(played: Played) -> None:
    spec = published()
    played.look(spec, report("STALLED"), 2)
    played.keep([])
    played._pass(report())
    assert played.edges == [("stalled", True)], "who has it now goes on from there"
    assert played._groups.now == frozenset()
    played.look(spec, report("STALLED"), 2)
    played.over(spec, "it was stopped")
    played.forget(NAME)
    played._pass(report())
    assert played.edges[-1] == ("stalled", True)


def test_groups_of_what_is_watched_are_asked_for(played: Played) -> None:
    named = played._groups
    played.look(published(), NO_REPORT)
    assert set(named) == {f"rollstream.{NAME}.{r}" for r in ("processor", "learner")}
    played.look(published(8, spec__archive="true"), NO_REPORT)
    assert f"rollstream.{NAME}.archiver" in named and len(named) == 3


def test_what_is_posted_says_which_what_and_since_when() -> None:
    edge = Edge(STALLED, False, "it does\nwell \x1b[31m", 0)
    assert payload(published(), edge, 61_500) == {
        "text": "rollstream cartpole-dqn: processor: stalled is off: it does well "
        "\N{REPLACEMENT CHARACTER}[31m",
        "experiment": NAME,
        "run_id": RUN_ID,
        "alert": "stalled",
        "state": "off",
        "role": "processor",
        "reason": "it does well \N{REPLACEMENT CHARACTER}[31m",
        "since": "1970-01-01T00:00:00.000+00:00",
        "at": "1970-01-01T00:01:01.500+00:00",
    }
