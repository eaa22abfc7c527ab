"""Who is seen to when brokers are away, topics gone, or another leads."""

from __future__ import annotations

import pytest

from infra.errors import DeliveryError, KafkaUnavailable, TopicError
from infra.monitoring import alerting
from infra.monitoring.alert_rules import AlertKey
from infra.monitoring.alert_states import Alert
from infra.monitoring.lag.model import NO_REPORT
from tests.unit.alerting.rig import (
    NAME,
    STALLED,
    Played,
    named,
    not_read,
    published,
    report,
)


@pytest.mark.parametrize(
    "error", [DeliveryError("its topic is gone"), TopicError("gone"), KeyError("odd")]
)
def test_those_that_cannot_be_told_of_hold_up_no_other(
    played: Played, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    names = [f"a-{number}" for number in range(9)]
    not_read(monkeypatch, dict.fromkeys(names, error))
    for name in names:
        played.see(named(name))
    played.look(published(), report("STALLED"))
    assert played.edges == [("stalled", True)], "in the first pass"


def test_brokers_that_are_away_are_not_asked_for_each(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a-0", "a-1", "a-2"]
    asked = not_read(monkeypatch, dict.fromkeys(names, KafkaUnavailable("away")))
    for name in names:
        played.see(named(name))
    played._pass(NO_REPORT)
    assert asked == ["a-0"]
    played.now_s += 1.0
    played._pass(NO_REPORT)
    assert asked == ["a-0", "a-1"], "the others come first"


def test_one_that_takes_long_does_not_starve_others(played: Played) -> None:
    def takes_long() -> None:
        played.now_s += 5.0

    played.sender.is_away, played.sender.while_telling = True, takes_long
    played.see(published())
    for name in ("b-0", "b-1"):
        played.see(named(name))
    played.look(published(), report("STALLED"))
    assert played._cases.keys() == {NAME}, "all that was known is old by then"
    played.look(published(), report("STALLED"))
    assert played._cases.keys() == {NAME, "b-0", "b-1"}


def test_who_may_not_act_says_nothing(played: Played) -> None:
    played.may = False
    played.look(published(), report("STALLED"), 9)
    assert played.edges == [] == played.sender.published


def test_who_may_act_no_more_tells_nothing_more(
    played: Played, on: list[Alert]
) -> None:
    """Each time it is asked anew: what is told before may take seconds."""

    def is_lost() -> None:
        played.may = False

    played.sender.while_telling = is_lost
    on.append(Alert(STALLED, 5, "of before"))
    on.append(Alert(AlertKey("late", "processor"), 6, "of before"))
    spec = published()
    played.see(spec)
    played.over(spec, "the run has ended")
    played._pass(report())
    assert len(played.sender.told) == 1
    played.may, played.sender.while_telling = True, lambda: None
    played._pass(report())
    assert len(played.sender.told) == 2, "and it is not forgotten"


def test_who_may_act_no_more_after_it_has_read_publishes_nothing(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> list[Alert]:
        played.may = False
        return []

    monkeypatch.setattr(alerting, "read_alerts", read)
    played.look(published(), report("STALLED", lag=4))
    assert played.edges == [] == played.sender.published
