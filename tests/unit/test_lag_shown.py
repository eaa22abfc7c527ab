"""Of too many groups and partitions, what a page is sent each second."""

import json
from dataclasses import replace

import pytest

from infra.monitoring.dashboard import lag_shown
from infra.monitoring.dashboard.as_json import encode, snapshot_values
from infra.monitoring.dashboard.lag_shown import lag_values
from infra.monitoring.lag.model import LagReport, Verdict
from infra.monitoring.lag.plain import plain_report
from infra.monitoring.worst_lag import worst_groups, worst_partitions
from tests.unit.snapshots import AT_S, SNAPSHOT, group, partition

LOST, OK = Verdict("LOST", 1, ""), Verdict("OK", 12, "")
OURS = "rollstream.e.processor"


def of(name, *lags, verdict=OK):
    return group(
        *(partition(name, "t", n, lag=k, verdict=verdict) for n, k in enumerate(lags))
    )


def places(found):
    return [(each["group"], each["partition"]) for each in found["partitions"]]


def test_of_few_all_is_sent():
    report = LagReport(AT_S, (of("g", 1, 2), of(OURS, 3)))
    nothing = {"left_out": {"groups": 0, "partitions": 0}}
    assert lag_values(report, ["e"]) == plain_report(report) | nothing


def test_the_worst_partitions_are_sent_and_those_of_experiments(monkeypatch):
    monkeypatch.setattr(lag_shown, "MAX_PARTITIONS", 4)
    lost = of("lost", 0, verdict=LOST)
    report = LagReport(AT_S, (of("g", 1, 9, 5), of(OURS, 0, 0), lost))
    found = lag_values(report, ["e", "f"])
    assert found["left_out"] == {"groups": 0, "partitions": 2}
    large, ours, bad = found["groups"]
    assert (places(large), large["lag"]) == ([("g", 1)], 15), "the sum is of all"
    assert places(ours) == [(OURS, 0), (OURS, 1)]
    assert places(bad) == [("lost", 0)] and bad["verdict"]["state"] == "LOST"
    others = lag_values(report, [])
    assert places(others["groups"][1]) == [], (
        "where no page shows it, it is one of many"
    )


def test_a_group_is_judged_by_partitions_that_are_not_sent(monkeypatch):
    monkeypatch.setattr(lag_shown, "MAX_PARTITIONS", 1)
    bad = of("bad", 3, verdict=LOST)
    both = replace(bad, partitions=(*bad.partitions, partition("bad", "t", 1, lag=9)))
    found = lag_values(LagReport(AT_S, (of(OURS, 0), both)), ["e"])
    kept = found["groups"][1]
    assert kept["partitions"] == []
    assert (kept["verdict"]["state"], kept["lag"], kept["lag_s"]) == ("LOST", 12, 2.5)


def test_the_worst_groups_are_sent_and_those_of_experiments(monkeypatch):
    monkeypatch.setattr(lag_shown, "MAX_GROUPS", 2)
    groups = (of("fine", 1), group(), of(OURS, 0), of("lost", 0, verdict=LOST))
    found = lag_values(LagReport(AT_S, groups), ["e"])
    assert [each["group"] for each in found["groups"]] == [OURS, "lost"]
    assert found["left_out"] == {"groups": 2, "partitions": 1}


@pytest.mark.parametrize("most", range(6))
def test_no_more_are_chosen_than_may_be(most):
    groups = tuple(of(f"g{n}", n, 9 - n) for n in range(4)) + (group(),)
    assert len(worst_groups(groups, most)) == min(most, 5)
    assert len(worst_partitions(groups, most)) == min(most, 8)
    assert len(worst_partitions(groups, 99)) == 8


def test_a_snapshot_of_a_huge_cluster_is_a_few_megabytes():
    groups = tuple(of(f"group-{n}", *range(100)) for n in range(2_500))
    snapshot = replace(SNAPSHOT, lag=LagReport(AT_S, groups))
    body = encode(snapshot_values(snapshot))
    assert len(body) < 5_000_000
    found = json.loads(body)["lag"]
    assert found["left_out"] == {"groups": 500, "partitions": 245_000}
