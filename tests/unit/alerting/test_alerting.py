"""Who is watched over, and what is told of them; all is played."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.monitoring.alert_events import payload
from infra.monitoring.alert_facts import RECOVERY_S
from infra.monitoring.alert_rules import AlertKey
from infra.monitoring.alert_states import Alert, Edge
from infra.monitoring.lag.model import NO_REPORT
from tests.unit.alerting.rig import (
    EPOCH_S,
    NAME,
    RUN_ID,
    STALLED,
    Played,
    published,
    report,
)


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
    old = replace(report("STALLED"), at_s=EPOCH_S - 60)
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


@pytest.mark.parametrize("of_group", ["", "t[7]: no broker leads it"])
def test_partitions_that_are_known_are_judged(played: Played, of_group: str) -> None:
    looked_at: dict[int, float] = {0: EPOCH_S}
    played.looked_at = looked_at
    played.look(published(), report("STALLED", of_group=of_group), 2)
    assert played.edges == [("stalled", True)]
    played.look(published(), report(of_group=of_group), 4)
    assert played.edges == [("stalled", True), ("stalled", False)]


def test_a_group_that_is_not_reached_is_not_judged_by_what_it_was(
    played: Played,
) -> None:
    """Its report repeats what was seen last."""
    silent = report("STALLED", of_group="its coordinator does not answer")
    played.looked_at = {0: EPOCH_S - 30.0}
    played.look(published(), silent, 9)
    played.looked_at = {}
    played.look(published(), silent, 9)
    assert played.edges == []


def test_lag_is_published_every_few_seconds(played: Played) -> None:
    played.look(published(), report(lag=4), 12)
    assert len(played.sender.published) == 3
    assert played.sender.published[0]["lag_records/processor"] == 4.0


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
