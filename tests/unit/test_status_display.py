"""How a status looks to a person."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from infra.monitoring.progress import Progress
from infra.monitoring.role_views import RoleView, Told
from infra.monitoring.status import ExperimentStatus, GroupStatus
from infra.monitoring.summary import summarise
from rollstream.hints import NO_AGENT
from rollstream.status_command import _show, to_json
from tests.unit.lag_reports import group, partition
from tests.unit.test_progress import evaluation, point, progress

BOOM = "given up after 6 failures: ended with code 1: boom (see /log)"
ALERT = Told("failed", "worker", 0, BOOM, 5_000, "alert")
ROLE = RoleView("worker", 0, 1, "h", -1, "failed", "boom", 6, "", 1, 1, 1, ALERT)


def summary(state="running", reason="5 roles on 1 agent", of=None):
    return summarise(
        "e", of or Progress("r"), None, state=state, reason=reason, wall_s=0.0,
        env_steps_before=0,
    )  # fmt: skip


def status(state="running", **more):
    known = {
        "wanted": "running", "managed_by": "agents", "roles": (), "agents": ("a",),
        "live_agents": ("a",), "pending": (), "groups": (), "alerts": (),
    }  # fmt: skip
    values = {**known, **more}
    found = values.pop("summary", None) or summary(state)
    return ExperimentStatus("e", "r", summary=found, letters=0, letters_put_back=0,
                            **values)  # fmt: skip


def shown(found):
    console = Console(file=io.StringIO(), width=160)
    _show(console, found)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("state", "more", "says"),
    [
        ("running", {}, "running: 5 roles on 1 agent"),
        ("finished", {}, "finished: 5 roles on 1 agent"),
        ("running", {"wanted": "paused"}, "(wanted: paused)"),
        ("degraded", {}, "(wanted: running)"),
        ("stopped", {"managed_by": "run"}, "stopped: 5 roles on 1 agent"),
    ],
)
def test_what_is_wanted_is_told_where_it_is_news(state, more, says):
    (line,) = [
        each for each in shown(status(state, **more)).splitlines() if "state " in each
    ]
    assert line.endswith(says)


def test_a_process_that_there_is_not_has_no_pid():
    text = shown(status("degraded", roles=(ROLE, replace(ROLE, index=1, pid=4321))))
    rows = {line.split()[0]: line for line in text.splitlines() if "/" in line}
    assert "-1" not in text and "4321" in text
    assert rows["worker/0"].split() == [
        "worker/0", "failed", "6", "h", "-", "0", "s", "ago", "0", "s", "ago",
    ]  # fmt: skip


def test_an_alert_is_printed_once_however_often_it_was_told():
    again = replace(ALERT, age_ms=90_000)
    found = status("degraded", roles=(ROLE,), alerts=(ALERT, again))
    text = shown(found)
    assert text.count("boom") == 1
    assert f"alert 5 s ago, 2 times  worker/0  failed: {BOOM}" in text
    assert len(to_json(found)["alerts"]) == 2


@pytest.mark.parametrize(
    ("state", "more", "is_told"),
    [
        ("pending", {"live_agents": ()}, True),
        ("running", {"live_agents": ()}, True),  # they have left
        ("pending", {"live_agents": ("a",)}, False),
        ("pending", {"live_agents": None}, False),  # ZooKeeper does not answer
        ("finished", {"live_agents": ()}, False),
        ("stopped", {"live_agents": (), "wanted": "stopped"}, False),
        ("running", {"live_agents": (), "managed_by": "run"}, False),
    ],
)
def test_who_waits_for_agents_is_told_that_there_are_none(state, more, is_told):
    assert NO_AGENT == "no agent runs: start one with `rollstream agent`"
    text = shown(status(state, agents=(), **more))
    assert (NO_AGENT in text.splitlines()) == is_told


@pytest.mark.parametrize(
    ("evaluated", "says"),
    [
        (None, "15 (the learner's newest)"),
        (10, "15 (the learner's newest), 10 (evaluated)"),
        (15, "15 (evaluated)"),
    ],
)
def test_a_policy_version_says_which_it_is(evaluated, says):
    records = [] if evaluated is None else [evaluation(80, evaluated)]
    of = progress(point("learner", policy_version=15), *records)
    (line,) = [
        each
        for each in shown(status(summary=summary(of=of))).splitlines()
        if each.startswith("policy version")
    ]
    assert line == f"policy version  {says}"


GROUPS = (
    GroupStatus(
        "processor",
        "rollstream.e.trajectories",
        group(
            "rollstream.e.processor",
            partition(0, topic="rollstream.e.trajectories", held=3, unsaved=4,
                      open_records=2),
            partition(1, "STALLED", topic="rollstream.e.trajectories", lag=1234,
                      lag_s=75.0, unsaved=1),
        ),
    ),
    GroupStatus(
        "learner", "rollstream.e.replay", group("rollstream.e.learner", problem="away")
    ),
)  # fmt: skip


def test_groups_show_how_far_they_are_behind_and_why():
    lines = [line.split() for line in shown(status(groups=GROUPS)).splitlines()]
    assert lines[-6:-1] == [
        ["GROUP", "TOPIC", "PARTITIONS", "LAG", "LAG-S", "HELD", "UNSAVED", "STATE"],
        ["processor", "rollstream.e.trajectories", "2", "1,234", "75", "3", "5",
         "STALLED"],
        ["learner", "rollstream.e.replay", "0", "-", "-", "0", "-", "-"],
        ["processor:", "[1]", "it", "is", "STALLED"],
        ["learner:", "away"],
    ]  # fmt: skip
    assert " ".join(lines[-1]) == (
        "processor: an open transaction holds back records of [0]"
    )


def test_groups_in_json_have_their_sums():
    processor, learner = to_json(status(groups=GROUPS))["groups"]
    assert (processor["role"], processor["lag"], processor["lag_s"]) == (
        "processor", 1234, 75.0,
    )  # fmt: skip
    assert processor["verdict"]["state"] == "STALLED"
    assert [each["held"] for each in processor["partitions"]] == [3, 0]
    assert (learner["role"], learner["topic"], learner["lag"]) == (
        "learner", "rollstream.e.replay", None,
    )  # fmt: skip
    assert (learner["partitions"], learner["problem"]) == ([], "away")
