"""What is told of at the end, and how it is not held up."""

from __future__ import annotations

import threading

import pytest

from infra.errors import TopicError
from infra.monitoring import alerting
from infra.monitoring.alert_states import Alert
from infra.monitoring.alerting import Alerting
from infra.monitoring.lag.model import NO_REPORT
from infra.monitoring.lag.monitor import LagMonitor
from infra.settings import Settings
from tests.unit.alerting.rig import (
    NAME,
    STALLED,
    Played,
    named,
    not_read,
    published,
    report,
)


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
    assert played._watched.all() == []


def test_what_is_over_before_it_was_looked_at_is_told_of_at_the_end(
    played: Played, on: list[Alert]
) -> None:
    on.append(Alert(STALLED, 5, "of before"))
    spec = published()
    played.see(spec)
    played.over(spec, "the run has ended")
    played._end()
    assert played.sender.told == [("stalled", False, "the run has ended")]


def test_the_next_leader_ends_what_the_last_one_has_left_on(
    played: Played, on: list[Alert], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped, or finished, while nobody led: it was never observed here."""
    on.append(Alert(STALLED, 5, "of the leader before"))
    asked: list[str] = []

    def read(_: Settings, name: str, *__: object) -> list[Alert]:
        asked.append(name)
        return on

    monkeypatch.setattr(alerting, "read_alerts", read)
    stopped = published(8, spec__state="stopped")
    for _ in range(5):
        played.now_s += 1.0
        played.over(stopped, "the experiment has ended")
        played.keep([])
        played._pass(NO_REPORT)
    assert played.sender.told == [("stalled", False, "the experiment has ended")]
    assert asked == [NAME], "once"
    assert played._watched.all() == [] and played._groups.now == frozenset()
    # Launched again, it is watched like any other.
    on.clear()
    played.look(published(9), report("STALLED"), 3)
    assert played.edges[1:] == [("stalled", True)]


def test_what_is_over_waits_for_what_runs(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader finds many that were stopped long ago."""
    asked: list[str] = []

    def read(_: Settings, name: str, *__: object) -> list[Alert]:
        asked.append(name)
        played.now_s += 1.5
        return []

    monkeypatch.setattr(alerting, "read_alerts", read)
    ended = [f"a-{number}" for number in range(5)]
    for name in ended:
        played.over(named(name), "the experiment has ended")
    played.look(published(), NO_REPORT)
    assert asked == [NAME, "a-0"], "so much in a pass, and no more"
    played.look(published(), NO_REPORT, 3)
    assert asked[1:] == ended


def test_what_never_ran_has_no_events_and_is_asked_for_rarely(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = not_read(monkeypatch, {"a-0": TopicError("there is no such topic")})
    played.over(named("a-0"), "the experiment has ended")
    played.look(published(), NO_REPORT, 50)
    assert asked.count("a-0") == 1
    played.forget("a-0")
    played.look(published(), NO_REPORT, 50)
    assert asked.count("a-0") == 1


def test_the_end_does_not_wait_until_it_is_tried_again(played: Played) -> None:
    spec = published()
    played.look(spec, report("STALLED"), 2)
    played.sender.is_away = True
    played.look(spec, report(), 3)
    assert played.edges == [("stalled", True)] and played.sender.tries == 2
    played.sender.is_away = False
    played.over(spec, "the run has ended")
    played._end()
    assert played.sender.told[-1] == ("stalled", False, "the run has ended")


def test_at_the_end_of_a_term_nothing_is_told(played: Played, on: list[Alert]) -> None:
    on.append(Alert(STALLED, 5, "of before"))
    played.look(published(), report("STALLED"), 2)
    played._end()
    assert played.edges == []


def test_a_look_that_hangs_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers that are away answer late, or never."""
    answers = threading.Event()
    monkeypatch.setattr(LagMonitor, "_run", lambda _: answers.wait(60.0))
    found = Alerting(Settings())
    thread = threading.Thread(target=found.run)
    thread.start()
    found.close()
    thread.join(30.0)
    assert not thread.is_alive() and not answers.is_set()
    answers.set()
