"""Placement: worked by hand, and its rules for whatever comes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.control.placement import Demand, Free, Host, Placement, RoleKey, place
from infra.control.plans import Trouble

LEARNER, WORKER, OTHER = (
    RoleKey("a", "learner", 0), RoleKey("a", "worker", 0), RoleKey("b", "worker", 0),
)  # fmt: skip


def test_roles_are_spread_and_the_learner_chooses_first():
    demands = [Demand(WORKER, 500), Demand(LEARNER, 500), Demand(OTHER, 500)]
    hosts = [Host("h-2", 2000, 0), Host("h-1", 2000, 0)]
    assert place(demands, hosts, {}).where == {
        LEARNER: "h-1", WORKER: "h-2", OTHER: "h-1",
    }  # fmt: skip


def names_of(found: Placement) -> list[tuple[str, str]]:
    return sorted((key.experiment, str(key)) for key in found.where)


FIRST = ["learner/0", "processor/0", "worker/0"]
ROLES = [("learner", 0), ("processor", 0), ("worker", 0), ("worker", 1)]


def whole(name: str, cpu: int = 250) -> list[Demand]:
    return [Demand(RoleKey(name, *role), cpu) for role in ROLES]


def test_where_room_is_short_one_experiment_runs_whole_not_all_in_part():
    found = place(whole("c") + whole("a") + whole("b"), [Host("h-1", 1750, 0)], {})
    # Seven places: three for each of the first two, and one more worker.
    assert names_of(found) == [
        *(("a", role) for role in FIRST), ("a", "worker/1"),
        *(("b", role) for role in FIRST),
    ]  # fmt: skip
    assert found.free == {"h-1": Free(0, 0, 512 - 7)}


def test_an_experiment_that_cannot_run_whole_takes_no_room_from_another():
    greedy = [*whole("a"), Demand(RoleKey("a", "evaluator", 0), 250, 1000)]
    found = place([*greedy, *whole("b")], [Host("h-1", 1000, 0)], {})
    assert names_of(found) == [("b", role) for role in [*FIRST, "worker/1"]]
    lacking, *others = found.pending.items()
    assert lacking == (
        RoleKey("a", "evaluator", 0), "no agent fits: h-1 lacks gpu 1 (free 0)",
    )  # fmt: skip
    assert {str(key) for key, _ in others} == {*FIRST, "worker/1"}
    assert {why for _, why in others} == {"waits for a place for evaluator/0"}


def test_what_fits_alone_and_not_together_says_beside_whom():
    found = place(whole("a", 500), [Host("h-1", 1000, 0)], {})
    assert found.where == {}
    assert dict(list(found.pending.items())[:1]) == {
        RoleKey("a", "worker", 0):
            "no agent fits beside the others: h-1 lacks cpu 0.5 (free 0)",
    }  # fmt: skip
    # What would fit alone goes on waiting, though there is room for it.
    assert found.free == {"h-1": Free(1000, 0, 512)}


def test_two_that_each_fit_alone_run_one_after_the_other():
    both, hosts = whole("a") + whole("b"), [Host("h-1", 1000, 0)]
    first = place(both, hosts, {})
    assert {name for name, _ in names_of(first)} == {"a"} and len(first.where) == 4
    again = place(both, hosts, first.where)
    assert again.where == first.where, "nor does it end"
    alone = place(whole("b"), hosts, first.where)
    assert {name for name, _ in names_of(alone)} == {"b"} and len(alone.where) == 4


def test_what_runs_is_not_torn_down_and_is_made_whole_before_others_begin():
    learner = RoleKey("z", "learner", 0)
    hosts = [Host("h-1", 500, 0)]
    found = place(whole("z"), hosts, {learner: "h-1", RoleKey("z", "worker", 0): "x"})
    assert names_of(found) == [("z", "learner/0"), ("z", "processor/0")]
    hosts.append(Host("h-2", 750, 0))
    after = place(whole("a") + whole("z"), hosts, found.where)
    assert names_of(after) == [("z", role) for role in [*FIRST, "worker/1"]]


def test_a_gang_is_seated_where_the_best_place_of_each_is_not_the_answer():
    """Spread out, the two small ones leave no host whole for the large one."""
    asked = {"learner": 500, "processor": 500, "worker": 1000}
    demands = [Demand(RoleKey("a", role, 0), cpu) for role, cpu in asked.items()]
    found = place(demands, [Host("h-1", 1000, 0), Host("h-2", 1000, 0)], {})
    assert found.where == {
        demands[0].key: "h-1", demands[1].key: "h-1", demands[2].key: "h-2",
    }  # fmt: skip


def test_agents_that_have_as_much_left_may_still_not_be_alike():
    demands = [
        Demand(RoleKey("a", "learner", 0), 1000),
        Demand(RoleKey("a", "worker", 0), 1000, 0, {"zone": "a"}),
    ]
    hosts = [Host("h-1", 1000, 0, {"zone": "a"}), Host("h-2", 1000, 0)]
    found = place(demands, hosts, {})
    assert found.where == {demands[0].key: "h-2", demands[1].key: "h-1"}


def test_a_large_cluster_without_room_is_not_searched_for_ever():
    hosts = [Host(f"h-{n:03}", 1000 + n, 0) for n in range(200)]
    demands = [Demand(RoleKey("a", role, 0), 1000) for role in ("learner", "processor")]
    demands.append(Demand(RoleKey("a", "worker", 0), 5000))
    found = place(demands, hosts, {})
    assert found.where == {} and len(found.pending) == 3


FULL = Trouble(reason="No space left on device", roles=("worker/0",))


def test_a_role_that_cannot_be_started_goes_where_it_fits():
    bad = Host("h-1", 2000, 0, troubles={"a": FULL})
    demands = [Demand(LEARNER, 500), Demand(WORKER, 500), Demand(OTHER, 500)]
    current = {key: "h-1" for key in (LEARNER, WORKER, OTHER)}
    found = place(demands, [bad, Host("h-2", 500, 0)], current)
    assert found.where == {LEARNER: "h-1", WORKER: "h-2", OTHER: "h-1"}
    assert found.stuck == {} == found.pending
    # For as long as the host is avoided; and afterwards, for it is there now.
    avoided = replace(bad, troubles={"a": Trouble(reason="full")})
    for host in (avoided, replace(bad, troubles={})):
        again = place(demands, [host, Host("h-2", 500, 0)], found.where)
        assert again.where == found.where


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ([], "h-1 cannot start it: No space left on device"),
        (
            [Host("h-2", 100, 0)],
            "h-1 cannot start it: No space left on device; no agent fits instead: "
            "h-2 lacks cpu 0.5 (free 0.1)",
        ),
        (
            [Host("h-2", 900, 0, troubles={"a": Trouble(reason="read-only")})],
            "h-1 cannot start it: No space left on device; nor can others",
        ),
    ],
)
def test_one_that_fits_nowhere_else_stays_and_says_why(other, why):
    bad = Host("h-1", 2000, 0, troubles={"a": FULL})
    found = place([Demand(WORKER, 500)], [bad, *other], {WORKER: "h-1"})
    assert found.where == {WORKER: "h-1"} and found.stuck == {WORKER: why}


def test_nothing_new_of_it_goes_to_a_host_in_trouble_while_another_fits():
    bad = Host("h-1", 9000, 0, troubles={"a": FULL})
    demands = [Demand(LEARNER, 500), Demand(WORKER, 500), Demand(OTHER, 500)]
    found = place(demands, [bad, Host("h-2", 1000, 0)], {})
    assert found.where == {LEARNER: "h-2", WORKER: "h-2", OTHER: "h-1"}
    assert place(demands, [bad], {}).where == {k: "h-1" for k in found.where}


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
    assert found.free == {agent: Free(*left) for agent, left in free.items()}
    begun = {key.experiment for key in found.where}
    for key in found.pending:
        if key.experiment in begun:
            assert not fit([by_key[key]], hosts, free), key
    for name in {key.experiment for key in found.pending} - begun:
        gang = [d for d in demands if d.key.experiment == name and not d.key.index]
        # Without a first role there is nothing to be begun as a whole.
        more = [d for d in demands if d.key.experiment == name]
        for together in [gang] if gang else [[each] for each in more]:
            assert not fit(together, hosts, free), name


def fit(demands: list[Demand], hosts: list[Host], free: dict) -> bool:
    """Whether all of them together fit anywhere: every way is tried."""
    for places in itertools.product(hosts, repeat=len(demands)):
        for host in hosts:
            mine = [d for d, at in zip(demands, places, strict=True) if at is host]
            cpu, gpu, roles = free[host.agent]
            if sum(d.cpu for d in mine) > cpu or sum(d.gpu for d in mine) > gpu:
                break
            if len(mine) > roles:
                break
            if any(not d.selector.items() <= host.labels.items() for d in mine):
                break
        else:
            return True
    return False


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


troubles = st.dictionaries(
    st.sampled_from("ab"),
    st.builds(
        Trouble,
        reason=st.just("full"),
        roles=st.sets(st.sampled_from(["learner/0", "worker/0", "worker/1"])).map(
            tuple
        ),
    ),
)


@settings(max_examples=200, deadline=None)
@given(demands_of_all, hosts_of_all, placed, st.data())
def test_hosts_in_trouble_are_left_only_for_others_that_fit(
    demands, hosts, current, data
):
    bad = [replace(host, troubles=data.draw(troubles)) for host in hosts]
    sound = {
        (host.agent, name) for host in bad for name in "ab" if name not in host.troubles
    }
    found = place(demands, bad, current)
    check(demands, bad, found)
    stayed = place(demands, hosts, current).where
    for key, agent in found.where.items():
        before = current.get(key)
        if before == stayed.get(key) not in (None, agent):
            assert (before, key.experiment) not in sound
            assert (agent, key.experiment) in sound


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
