"""Which rules are broken, of what is known: the table is the specification."""

from __future__ import annotations

import math
from typing import Any

import pytest

from infra.monitoring.alert_rules import (
    ALERT_NAMES,
    GROUP_ROLES,
    OF_GROUPS,
    AlertKey,
    AlertName,
    Look,
    standings,
)
from infra.monitoring.lag.judge import Rules, judge
from infra.monitoring.lag.model import ORDER, GroupLag, PartitionLag, State, Verdict
from schemas.experiment import Spec, from_values
from tests.unit.lag_samples import group, partition
from tests.unit.lag_windows import window
from tests.unit.test_experiment import values
from tests.unit.test_lag_judge import CASES

BROKEN, WELL, BETWEEN, UNKNOWN = "broken", "well", "in between", "unknown"
FINE = group(partition(0), partition(1))
LEARNS = {"loss": 0.1, "lost_steps": 0.0, "policy_lag_mean": 3.0, "updates": 9.0}


def spec(**changes: str) -> Spec:
    return from_values(values(**changes)).spec


def state_of(look: Look, name: AlertName, role: str) -> str:
    found = standings(look).get(AlertKey(name, role))
    if found is None:
        return UNKNOWN
    assert not (found.is_broken and found.is_well) and found.reason
    return BROKEN if found.is_broken else WELL if found.is_well else BETWEEN


def warned(rule: int, number: int = 0, **figures: Any) -> PartitionLag:
    verdict = Verdict("WARN", rule, f"rule {rule}")
    return partition(number, verdict=verdict, **figures)


def rates(comes: float | None, goes: float | None) -> dict[str, float | None]:
    return {"produced_per_s": comes, "consumed_per_s": goes}


def late(lag_s: float | None, lag: int | None = 5) -> GroupLag:
    return group(partition(0, lag=lag, lag_s=lag_s), partition(1))


@pytest.mark.parametrize(
    ("name", "found", "changes", "expected"),
    [
        # Of a group, by the worst of its partitions.
        ("stalled", FINE, {}, WELL),
        ("stalled", group(partition(0), partition(1, "STALLED")), {}, BROKEN),
        ("stalled", group(partition(0, "STOPPED")), {}, BROKEN),
        ("stalled", group(partition(0, "WARN")), {}, WELL),
        # Something as bad, or worse, is no end of it.
        ("stalled", group(partition(0, "LOST")), {}, BETWEEN),
        ("stalled", group(partition(0), partition(1, "REWIND")), {}, BETWEEN),
        ("stalled", group(partition(0, "NO_COMMIT"), partition(1, "EMPTY")), {}, WELL),
        ("stalled", None, {}, UNKNOWN),
        ("stalled", group(), {}, UNKNOWN),
        ("lost-place", group(partition(0, "LOST")), {}, BROKEN),
        ("lost-place", group(partition(0, "REWIND")), {}, BROKEN),
        ("lost-place", group(partition(0, "STALLED")), {}, BETWEEN),
        ("lost-place", group(partition(0, "WARN")), {}, WELL),
        # By the judge's rules: a lag that is late, or near expiry, may well fall.
        ("growing-lag", group(partition(0), warned(11, 1)), {}, BROKEN),
        ("growing-lag", group(warned(10)), {}, BETWEEN),
        ("growing-lag", group(warned(9)), {}, BETWEEN),
        ("growing-lag", group(warned(8)), {}, BETWEEN),
        # Who is late by the judge may fall behind further, or not.
        ("growing-lag", group(warned(10, **rates(9.0, 4.0))), {}, BROKEN),
        ("growing-lag", group(warned(10, **rates(4.0, 9.0))), {}, BETWEEN),
        ("growing-lag", group(warned(10, **rates(9.0, 9.0))), {}, BETWEEN),
        ("growing-lag", group(warned(10, **rates(9.0, None))), {}, BETWEEN),
        ("growing-lag", group(partition(0, **rates(9.0, 4.0))), {}, WELL),
        ("growing-lag", group(partition(0, "STALLED")), {}, BETWEEN),
        ("growing-lag", group(partition(0, "LOST")), {}, BETWEEN),
        ("growing-lag", FINE, {}, WELL),
        ("near-expiry", group(partition(0), warned(9, 1)), {}, BROKEN),
        ("near-expiry", group(warned(8)), {}, BROKEN),
        ("near-expiry", group(warned(10)), {}, BETWEEN),
        ("near-expiry", group(partition(0, "LOST")), {}, BETWEEN),
        ("near-expiry", FINE, {}, WELL),
        # Late, with room between the bound and what is well.
        ("late", late(60.1), {}, BROKEN),
        ("late", late(60.0), {}, BETWEEN),
        ("late", late(48.1), {}, BETWEEN),
        ("late", late(47.9), {}, WELL),
        ("late", late(9.0), {"spec__alerts__lagS": "8"}, BROKEN),
        ("late", late(None, lag=0), {}, WELL),
        ("late", late(None), {}, UNKNOWN),
        ("late", group(partition(0, "EMPTY", lag=None)), {}, WELL),
        # Nobody knows for how long waits what is lost.
        ("late", group(partition(0, "LOST", lag=None), partition(1)), {}, UNKNOWN),
        ("late", group(partition(0, "LOST", lag=None), partition(1, lag=3, lag_s=1.0)),
         {}, BETWEEN),
        ("late", group(partition(0, "LOST", lag=None), partition(1, lag=3, lag_s=61.0)),
         {}, BROKEN),
        # What is turned off is well, also for an alert that is on.
        ("stalled", group(partition(0, "STALLED")),
         {"spec__alerts__stalledAfterS": "null"}, WELL),
        ("lost-place", group(partition(0, "LOST")),
         {"spec__alerts__lostPlace": "false"}, WELL),
        ("growing-lag", group(warned(11)),
         {"spec__alerts__growingForS": "null"}, WELL),
        ("near-expiry", group(warned(9)),
         {"spec__alerts__nearExpiry": "false"}, WELL),
        ("late", late(1e6), {"spec__alerts__lagS": "null"}, WELL),
        # Who is paused or stopped has no duty to keep up.
        ("stalled", group(partition(0, "STALLED")), {"spec__state": "paused"}, WELL),
        ("late", late(1e6), {"spec__state": "stopped"}, WELL),
        ("late", None, {"spec__state": "stopped"}, WELL),
    ],
)  # fmt: skip
def test_rules_about_a_group(
    name: AlertName, found: GroupLag | None, changes: dict[str, str], expected: str
) -> None:
    groups = {"processor": found} if found else {}
    assert state_of(Look(spec(**changes), groups), name, "processor") == expected


@pytest.mark.parametrize(
    ("name", "told", "changes", "expected"),
    [
        ("nonfinite-loss", LEARNS, {}, WELL),
        ("nonfinite-loss", {**LEARNS, "loss": math.nan}, {}, BROKEN),
        ("nonfinite-loss", {**LEARNS, "loss": math.inf}, {}, BROKEN),
        ("nonfinite-loss", {**LEARNS, "loss": math.nan},
         {"spec__alerts__nonfiniteLoss": "false"}, WELL),
        ("nonfinite-loss", {}, {}, UNKNOWN),
        ("lost-steps", LEARNS, {}, WELL),
        ("lost-steps", {"lost_steps": 1.0}, {}, BROKEN),
        ("lost-steps", {"lost_steps": 8.0}, {"spec__alerts__lostSteps": "8"}, WELL),
        ("lost-steps", {"lost_steps": 9.0}, {"spec__alerts__lostSteps": "8"}, BROKEN),
        ("lost-steps", {"lost_steps": 9.0}, {"spec__alerts__lostSteps": "null"}, WELL),
        ("lost-steps", {}, {}, UNKNOWN),
        ("policy-lag", LEARNS, {}, WELL),
        ("policy-lag", {"policy_lag_mean": 201.0}, {}, BROKEN),
        ("policy-lag", {"policy_lag_mean": 170.0}, {}, BETWEEN),
        ("policy-lag", {"policy_lag_mean": math.nan}, {}, UNKNOWN),
        ("policy-lag", {"policy_lag_mean": 9.0},
         {"spec__alerts__policyLagVersions": "8"}, BROKEN),
        ("policy-lag", {"policy_lag_mean": 9e9},
         {"spec__alerts__policyLagVersions": "null"}, WELL),
        ("policy-lag", {"policy_lag_mean": 9e9}, {"spec__state": "paused"}, UNKNOWN),
        # Those of a past are as old as it is.
        ("policy-lag", {"policy_lag_mean": 9e9},
         {"spec__past": "{experiment: before}", "spec__workers": "{replicas: 0}"},
         WELL),
        ("policy-lag", {"policy_lag_mean": 9e9},
         {"spec__learner__sources": "[{}, {experiment: before}]"}, WELL),
        ("policy-lag", {}, {}, UNKNOWN),
        # Replay is old on purpose: only who asks is told.
        ("policy-age", {"policy_lag_s_p95": 9e9}, {}, WELL),
        ("policy-age", {"policy_lag_s_p95": 31.0},
         {"spec__alerts__policyLagS": "30"}, BROKEN),
        ("policy-age", {"policy_lag_s_p95": 23.0},
         {"spec__alerts__policyLagS": "30"}, WELL),
        ("policy-age", {}, {"spec__alerts__policyLagS": "30"}, UNKNOWN),
    ],
)  # fmt: skip
def test_rules_about_the_learner(
    name: AlertName, told: dict[str, float], changes: dict[str, str], expected: str
) -> None:
    assert state_of(Look(spec(**changes), {}, told), name, "learner") == expected


def test_losses_that_were_left_out_are_told_of_for_a_minute() -> None:
    told = {**LEARNS, "nonfinite_losses": 3.0}
    for age_s, expected in ((59.0, BROKEN), (61.0, WELL)):
        look = Look(spec(), {}, told, nonfinite_age_s=age_s)
        assert state_of(look, "nonfinite-loss", "learner") == expected


@pytest.mark.parametrize("before", ["STALLED", "STOPPED", "LOST", "REWIND", "WARN"])
def test_a_group_that_gets_worse_does_well_by_no_rule(before: State) -> None:
    """What is on goes off only when all that is as bad is over."""
    warnings = [warned(rule) for rule in (8, 9, 10, 11)]
    ill = warnings if before == "WARN" else [partition(0, before)]
    for one in ill:
        found = standings(Look(spec(), {"processor": group(one, partition(1))}))
        broken = {key for key, standing in found.items() if standing.is_broken}
        for after in ORDER[: ORDER.index(before) + 1]:
            worse = group(partition(0, after), partition(1))
            now = standings(Look(spec(), {"processor": worse}))
            for key in broken:
                assert not now[key].is_well, (key, before, after)


def test_the_reason_that_one_is_over_says_what_is_not_well() -> None:
    warning = Look(spec(), {"processor": group(warned(10), partition(1))})
    found = standings(warning)[AlertKey("stalled", "processor")]
    assert found.is_well and found.reason == "it is WARN now"
    fine = standings(Look(spec(), {"processor": FINE}))
    assert fine[AlertKey("stalled", "processor")].reason == "it does well"


def test_rules_of_the_judge_are_taken_for_what_they_are() -> None:
    """By what they say: their numbers are the judge's."""
    verdicts = [judge(window(*case.looks), Rules()) for case in CASES]
    seen = set()
    for verdict in verdicts:
        found = group(partition(0, verdict=verdict))
        look = Look(spec(), {"processor": found})
        grows = state_of(look, "growing-lag", "processor") == BROKEN
        expires = state_of(look, "near-expiry", "processor") == BROKEN
        is_warned = verdict.state == "WARN"
        assert grows == (is_warned and "the lag grows" in verdict.reason)
        assert expires == (is_warned and "expire" in verdict.reason)
        seen |= {verdict.rule} if is_warned else set()
    assert seen == {8, 9, 10, 11}


def test_an_archiver_is_judged_where_there_is_one() -> None:
    found = {"archiver": group(partition(0, "STALLED"))}
    assert state_of(Look(spec(), found), "stalled", "archiver") == WELL
    archived = Look(spec(spec__archive="true"), found)
    assert state_of(archived, "stalled", "archiver") == BROKEN


def test_the_reason_names_the_worst_partition_and_how_many() -> None:
    ill = [partition(n, "STALLED", lag=lag) for n, lag in ((1, 7), (2, 9))]
    look = Look(spec(), {"processor": group(partition(0, lag=99), *ill)})
    found = standings(look)[AlertKey("stalled", "processor")]
    assert found.reason == (
        "STALLED, in 2 of 3 partitions: rollstream.e.trajectories[2]: because 2"
    )
    one = Look(spec(), {"processor": group(partition(3, "STOPPED"))})
    assert standings(one)[AlertKey("stalled", "processor")].reason == (
        "STOPPED: rollstream.e.trajectories[3]: because 3"
    )


def test_a_late_one_that_grows_says_by_how_much() -> None:
    late_one = group(warned(10, **rates(12.0, 4.5)))
    found = standings(Look(spec(), {"processor": late_one}))
    assert found[AlertKey("growing-lag", "processor")].reason == (
        "WARN: rollstream.e.trajectories[0]: 12 records come each second, "
        "4.5 are handled"
    )


@pytest.mark.parametrize(
    ("role", "changes", "hold_s"),
    [
        ("processor", {}, 0.0),
        ("processor", {"spec__alerts__stalledAfterS": "30"}, 25.0),
        ("learner", {}, 25.0),
        ("learner", {"spec__alerts__stalledAfterS": "90"}, 25.0),
        ("learner", {"spec__alerts__learnerStalledAfterS": "5"}, 0.0),
    ],
)
def test_what_the_judge_has_waited_for_is_not_waited_for_again(
    role: str, changes: dict[str, str], hold_s: float
) -> None:
    look = Look(spec(**changes), {role: group(partition(0, "STALLED"))})
    found = standings(look)[AlertKey("stalled", role)]
    assert found.is_broken and found.for_s == hold_s


def test_a_learner_that_may_stall_is_well() -> None:
    off = spec(spec__alerts__learnerStalledAfterS="null")
    look = Look(off, {"learner": group(partition(0, "STALLED"))})
    assert state_of(look, "stalled", "learner") == WELL


def test_the_judge_waits_for_as_long_as_is_said() -> None:
    assert Rules().stalled_after_s == 5.0


def test_every_rule_is_judged_with_the_defaults() -> None:
    told: dict[str, Any] = {**LEARNS, "policy_lag_s_p95": 1.0}
    found = standings(Look(spec(), dict.fromkeys(GROUP_ROLES, FINE), told))
    assert {key.name for key in found} == set(ALERT_NAMES) >= set(OF_GROUPS)
    assert all(standing.is_well for standing in found.values())
