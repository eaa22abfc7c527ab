"""Specs in force and plans -> plans."""

from __future__ import annotations

import json

import pytest

from infra.control.desired import PublishedExperiment
from infra.control.placement import Demand, RoleKey
from infra.control.plans import (
    MAX_AGENT_BYTES,
    MAX_PLAN_BYTES,
    AgentFacts,
    BadNode,
    Capacity,
    Plan,
    Trouble,
    chunks,
    parse_agent,
    parse_plan,
    thousandths,
)
from infra.control.wants import (
    Counts,
    assignments,
    changes,
    counts_of,
    current_places,
    demand_of,
    hosts_of,
    key_of,
    least_roles,
    new_plans,
    placed_of,
)
from schemas.experiment import from_values
from tests.unit.test_experiment import values


def published(offset=7, run_id="r1", **overrides):
    experiment = from_values(values(**overrides))
    return PublishedExperiment(experiment, run_id, offset, "agents")


def roles_of(known):
    return assignments(known, counts_of(known, []))


def test_a_spec_gives_each_process_and_what_it_asks_for():
    known = published(spec__workers__resources="{cpu: 0.1, gpu: 0.5}",
                      spec__workers__nodeSelector="{zone: a}")  # fmt: skip
    roles = roles_of(known)
    assert [str(key_of(role)) for role in roles] == [
        "learner/0", "processor/0", "evaluator/0", "worker/0", "worker/1",
    ]  # fmt: skip
    assert demand_of(roles[-1], known.experiment.spec) == Demand(
        RoleKey("cartpole-dqn", "worker", 1), 100, 500, {"zone": "a"}
    )
    assert roles_of(published(spec__state="stopped")) == []
    assert len(roles_of(published(spec__state="paused"))) == 5


def test_another_scale_leaves_digests_as_they_are():
    few, more = published(), published(9, spec__workers__replicas="4")
    before = {key_of(role): role.digest for role in roles_of(few)}
    after = {key_of(role): role.digest for role in roles_of(more)}
    assert before.items() <= after.items() and len(after) == 7
    other_run = roles_of(published(run_id="r2"))
    assert not {role.digest for role in other_run} & set(before.values())


def test_an_elastic_number_goes_on_from_the_plans():
    known = published(spec__workers="{replicas: 2, min: 1, max: 4}")
    planned = assignments(known, Counts(3, 1))
    assert counts_of(known, planned) == Counts(3, 1)
    assert counts_of(known, []) == Counts(2, 1), "the start value"
    assert counts_of(known, assignments(known, Counts(9, 1))) == Counts(4, 1)
    fresh = published(run_id="r2", spec__workers="{replicas: 2, min: 1, max: 4}")
    assert counts_of(fresh, planned) == Counts(2, 1), "of another run"


def test_plans_are_written_only_where_they_differ():
    known = published()
    roles = {key_of(role): role for role in roles_of(known)}
    where = {key: "h-1" if key.role == "worker" else "h-2" for key in roles}
    plans = new_plans(3, ["h-1", "h-2", "h-3"], roles, where)
    assert [len(plans[name].roles) for name in ("h-1", "h-2", "h-3")] == [2, 3, 0]
    assert current_places(plans) == where
    read = {name: parse_plan(plan.to_json()) for name, plan in plans.items()}
    assert changes(read, plans) == {}
    assert changes({**read, "h-1": None}, plans) == {"h-1": plans["h-1"]}
    gone = {name: plan for name, plan in plans.items() if name != "h-3"}
    assert changes(read, gone) == {"h-3": None}
    later = new_plans(4, ["h-1", "h-2", "h-3"], roles, where)
    assert changes(read, later).keys() == {"h-1", "h-2", "h-3"}, "another epoch"


def test_a_plan_with_a_role_twice_is_refused():
    role = json.loads(Plan(epoch=1, roles=tuple(roles_of(published()))).to_json())
    role["roles"].append(role["roles"][0])
    with pytest.raises(BadNode, match="each role once"):
        parse_plan(json.dumps(role).encode())


def test_what_newer_versions_add_is_passed_over():
    plan = Plan(epoch=1, roles=tuple(roles_of(published())))
    value = json.loads(plan.to_json())
    value["colour"] = value["roles"][0]["weight"] = 3
    assert parse_plan(json.dumps(value).encode()) == plan


def test_transactions_are_cut_to_what_fits():
    plans = {f"h-{number}": b"x" * 400_000 for number in range(5)} | {"gone": None}
    cut = list(chunks(plans))
    assert [list(each) for each in cut] == [
        ["gone", "h-0", "h-1"], ["h-2", "h-3"], ["h-4"],
    ]  # fmt: skip
    assert {name: value for each in cut for name, value in each.items()} == plans
    assert all(sum(len(v or b"") for v in e.values()) < MAX_PLAN_BYTES for e in cut)


@pytest.mark.parametrize(
    ("amount", "expected"), [(0.25, 250), (0.1 + 0.2, 300), (0.0001, 1), (0.0, 0)]
)
def test_amounts_are_counted_in_thousandths_rounded_up(amount, expected):
    assert thousandths(amount) == expected


def test_of_an_elastic_role_the_fewest_are_missed():
    known = published(spec__workers="{replicas: 3, min: 2, max: 8}")
    spec = known.experiment.spec
    assert [each.key for each in least_roles(spec) if each.role == "worker"] == [
        "worker/0", "worker/1",
    ]  # fmt: skip
    fixed = published(spec__workers__replicas="3").experiment.spec
    assert sum(each.role == "worker" for each in least_roles(fixed)) == 3
    assert least_roles(published(spec__state="stopped").experiment.spec) == []


@pytest.mark.parametrize(
    ("because", "placed", "asked", "got"),
    [
        ("all of them fit", 4, Counts(4, 1), Counts(4, 1)),
        ("one more does", 3, Counts(4, 1), Counts(3, 1)),
        ("none does", 2, Counts(4, 1), Counts(2, 1)),
        ("two were nowhere before", 1, Counts(4, 1), Counts(2, 1)),
        ("fewer are always possible", 1, Counts(1, 1), Counts(1, 1)),
    ],
)
def test_there_are_as_many_as_found_a_place(because, placed, asked, got):
    where = {RoleKey("e", "worker", n): "h-1" for n in range(placed)}
    where |= {RoleKey("e", "processor", 0): "h-1", RoleKey("f", "worker", 0): "h-1"}
    assert placed_of("e", where, Counts(2, 1), asked) == got, because


def test_an_agent_in_trouble_says_so_and_is_read_back():
    facts = AgentFacts(host="h", pid=1, capacity=Capacity(cpu=2.0))
    trouble = Trouble(reason="full", roles=("worker/0",))
    said = facts.with_troubles({"exp": trouble})
    assert parse_agent(said.to_json()) == said
    (host,) = hosts_of({"h-1": said})
    assert host.troubles == {"exp": trouble}
    assert facts.with_troubles({}) == facts
    # An agent that cannot be read would be taken for gone.
    many = {f"e-{n}": Trouble(reason="\U0001f4a5" * 200) for n in range(900)}
    much = {f"e-{n}": Trouble(roles=tuple(["worker/1"] * 512)) for n in range(60)}
    for troubles in (many, much):
        said = facts.with_troubles(troubles)
        assert said.troubles and len(said.to_json()) <= MAX_AGENT_BYTES
        assert parse_agent(said.to_json()) == said
