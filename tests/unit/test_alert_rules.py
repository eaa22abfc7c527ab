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
from infra.monitoring.lag.judge import Rules
from infra.monitoring.lag.model import GroupLag
from schemas.experiment import Spec, from_values
from tests.unit.lag_samples import group, partition
from tests.unit.test_experiment import values

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
        ("stalled", group(partition(0, "LOST")), {}, WELL),
        ("stalled", group(partition(0, "NO_COMMIT"), partition(1, "EMPTY")), {}, WELL),
        ("stalled", None, {}, UNKNOWN),
        ("lost-place", group(partition(0, "LOST")), {}, BROKEN),
        ("lost-place", group(partition(0, "REWIND")), {}, BROKEN),
        ("lost-place", group(partition(0, "STALLED")), {}, WELL),
        ("growing-lag", group(partition(0, "WARN")), {}, BROKEN),
        ("growing-lag", group(partition(0, "STALLED")), {}, WELL),
        # Late, with room between the bound and what is well.
        ("late", late(60.1), {}, BROKEN),
        ("late", late(60.0), {}, BETWEEN),
        ("late", late(48.1), {}, BETWEEN),
        ("late", late(47.9), {}, WELL),
        ("late", late(9.0), {"spec__alerts__lagS": "8"}, BROKEN),
        ("late", late(None, lag=0), {}, WELL),
        ("late", late(None), {}, UNKNOWN),
        # What is turned off is well, also for an alert that is on.
        ("stalled", group(partition(0, "STALLED")),
         {"spec__alerts__stalledAfterS": "null"}, WELL),
        ("lost-place", group(partition(0, "LOST")),
         {"spec__alerts__lostPlace": "false"}, WELL),
        ("growing-lag", group(partition(0, "WARN")),
         {"spec__alerts__growingForS": "null"}, WELL),
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
