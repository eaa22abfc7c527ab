"""Placement: worked by hand, and its rules for whatever comes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from infra.control.placement import Demand, Host, Placement, RoleKey, place

LEARNER, WORKER, OTHER = (
    RoleKey("a", "learner", 0), RoleKey("a", "worker", 0), RoleKey("b", "worker", 0),
)  # fmt: skip


def test_roles_are_spread_and_the_learner_chooses_first():
    demands = [Demand(WORKER, 500), Demand(LEARNER, 500), Demand(OTHER, 500)]
    hosts = [Host("h-2", 2000, 0), Host("h-1", 2000, 0)]
    assert place(demands, hosts, {}).where == {
        LEARNER: "h-1", WORKER: "h-2", OTHER: "h-1",
    }  # fmt: skip


def test_where_room_is_short_one_experiment_runs_whole_not_all_in_part():
    roles = [("learner", 0), ("processor", 0), ("worker", 0), ("worker", 1)]
    demands = [Demand(RoleKey(name, *role), 250) for name in "cab" for role in roles]
    found = place(demands, [Host("h-1", 1750, 0)], {})
    # Seven places: three for each of the first two, and one is left.
    placed = sorted((key.experiment, str(key)) for key in found.where)
    first = ["learner/0", "processor/0", "worker/0"]
    assert placed == [
        *(("a", role) for role in first),
        *(("b", role) for role in first),
        ("c", "learner/0"),
    ]


def test_a_role_stays_though_another_agent_is_empty():
    demands = [Demand(LEARNER, 500), Demand(WORKER, 500)]
    hosts = [Host("h-1", 1000, 0), Host("h-2", 9000, 0)]
    current = {LEARNER: "h-1", WORKER: "h-1"}
    assert place(demands, hosts, current).where == current


def test_only_what_an_agent_that_is_gone_had_moves():
    demands = [Demand(LEARNER, 500), Demand(WORKER, 500)]
    found = place(demands, [Host("h-2", 2000, 0)], {LEARNER: "h-1", WORKER: "h-2"})
    assert found.where == {LEARNER: "h-2", WORKER: "h-2"}


def test_what_fits_nowhere_waits_and_says_why():
    demands = [
        Demand(LEARNER, 500, 1000), Demand(WORKER, 3000),
        Demand(OTHER, 100, 0, {"zone": "b"}),
    ]  # fmt: skip
    found = place(demands, [Host("h-1", 2000, 0, {"zone": "a"})], {})
    assert found.where == {}
    assert found.pending == {
        LEARNER: "no agent fits: h-1 lacks gpu 1 (free 0)",
        WORKER: "no agent fits: h-1 lacks cpu 3 (free 2)",
        OTHER: "no agent fits: h-1 lacks label zone=b (has a)",
    }
    assert place([Demand(OTHER)], [], {}).pending == {OTHER: "no agent lives"}


def test_who_needs_no_device_leaves_it_to_others():
    hosts = [Host("h-1", 8000, 1000), Host("h-2", 1000, 0)]
    assert place([Demand(WORKER, 500)], hosts, {}).where == {WORKER: "h-2"}


def test_a_role_whose_selector_changed_moves():
    hosts = [Host("h-1", 2000, 0, {"zone": "a"}), Host("h-2", 2000, 0, {"zone": "b"})]
    demand = Demand(WORKER, 500, 0, {"zone": "b"})
    assert place([demand], hosts, {WORKER: "h-1"}).where == {WORKER: "h-2"}


labels = st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2)
amounts = st.integers(0, 1500)
keys = st.builds(
    RoleKey,
    st.sampled_from("ab"),
    st.sampled_from(["learner", "processor", "evaluator", "worker"]),
    st.integers(0, 3),
)
demands_of_all = st.lists(
    st.builds(Demand, keys, amounts, st.sampled_from([0, 0, 500, 1000]), labels),
    max_size=14,
    unique_by=lambda demand: demand.key,
)
hosts_of_all = st.lists(
    st.builds(
        Host,
        st.sampled_from(["h-1", "h-2", "h-3", "h-4"]),
        st.integers(0, 4000),
        st.sampled_from([0, 1000, 2000]),
        labels,
        st.integers(0, 6),
    ),
    max_size=4,
    unique_by=lambda host: host.agent,
)
placed = st.dictionaries(keys, st.sampled_from(["h-1", "h-2", "h-3", "gone"]))


def check(demands: list[Demand], hosts: list[Host], found: Placement) -> None:
    """An oracle of its own: adds everything up, and tries every agent again."""
    by_key = {demand.key: demand for demand in demands}
    assert found.where.keys() | found.pending.keys() == by_key.keys()
    assert not found.where.keys() & found.pending.keys()
    free = {}
    for host in hosts:
        mine = [by_key[k] for k, agent in found.where.items() if agent == host.agent]
        cpu, gpu = sum(d.cpu for d in mine), sum(d.gpu for d in mine)
        assert cpu <= host.cpu and gpu <= host.gpu and len(mine) <= host.max_roles
        for demand in mine:
            assert demand.selector.items() <= host.labels.items()
        free[host.agent] = (host.cpu - cpu, host.gpu - gpu, host.max_roles - len(mine))
    assert set(found.where.values()) <= free.keys()
    for key in found.pending:
        demand = by_key[key]
        for host in hosts:
            cpu, gpu, roles = free[host.agent]
            fits = demand.cpu <= cpu and demand.gpu <= gpu and roles > 0
            assert not (fits and demand.selector.items() <= host.labels.items()), key


@settings(max_examples=300, deadline=None)
@given(demands_of_all, hosts_of_all, placed)
def test_nobody_gets_more_than_it_has_and_every_selector_is_kept(
    demands, hosts, current
):
    check(demands, hosts, place(demands, hosts, current))


@settings(max_examples=200, deadline=None)
@given(demands_of_all, hosts_of_all, placed, st.randoms())
def test_the_same_input_gives_the_same_in_whatever_order(
    demands, hosts, current, random
):
    found = place(demands, hosts, current)
    shuffled = list(current.items())
    for each in (demands, hosts, shuffled):
        random.shuffle(each)
    assert place(demands, hosts, dict(shuffled)) == found


@settings(max_examples=200, deadline=None)
@given(demands_of_all, hosts_of_all, placed)
def test_placed_again_nothing_moves(demands, hosts, current):
    found = place(demands, hosts, current)
    again = place(demands, hosts, found.where)
    assert again.where == found.where


@settings(max_examples=200, deadline=None)
@given(demands_of_all, hosts_of_all, st.data())
def test_when_an_agent_goes_only_its_roles_move(demands, hosts, data):
    found = place(demands, hosts, {})
    if not hosts:
        return
    gone = data.draw(st.sampled_from([host.agent for host in hosts]))
    rest = [host for host in hosts if host.agent != gone]
    after = place(demands, rest, found.where)
    for key, agent in found.where.items():
        if agent != gone:
            assert after.where[key] == agent


@settings(max_examples=200, deadline=None)
@given(demands_of_all, hosts_of_all, st.data())
def test_more_of_anything_moves_nobody(demands, hosts, data):
    """Another role, another agent or more capacity: what is placed stays."""
    split = data.draw(st.integers(0, len(demands)))
    found = place(demands[:split], hosts, {})
    larger = [replace(host, cpu=host.cpu + 500) for host in hosts]
    larger.append(Host("h-new", 4000, 2000, {"x": "1", "y": "1"}))
    after = place(demands, larger, found.where)
    assert found.where.items() <= after.where.items()
