"""Who leads, and the fence around what a leader writes; on the real ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from kazoo.exceptions import KazooException

from infra.control import plan_watch, znodes
from infra.control.coordination import MARGIN_S, Coordination
from infra.control.election import Candidate, Fenced, Leadership
from infra.control.placement import RoleKey
from infra.control.plan_watch import PlanWatch
from infra.control.plans import Capacity, Plan, RoleAssignment, facts_of_this_process
from infra.control.znodes import AGENTS, ASSIGNMENTS, EPOCH, LEADER, ROLES
from infra.settings import Settings
from tests.integration.agent_rig import until
from tests.integration.control_rig import SESSION_S
from tests.integration.test_coordination import expire

pytestmark = pytest.mark.kafka

ROLE = RoleAssignment(
    experiment="held", run_id="r1", role="worker", index=0, spec_offset=3, digest="ab"
)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(znodes, "_ANSWER_S", 60.0)


class Contender:
    """One candidate in a thread; leads until told to stop."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.coordination = Coordination(settings, SESSION_S)
        self.coordination.name = name
        self.coordination.start(60.0)
        self.terms: list[Leadership] = []
        self.resign = threading.Event()
        self.candidate = Candidate(self.coordination, self._lead)
        self.thread = threading.Thread(target=self.candidate.run, daemon=True)
        self.thread.start()

    @property
    def leads(self) -> bool:
        return self.leading is not None

    leading: Leadership | None = None

    def _lead(self, leadership: Leadership) -> None:
        self.terms.append(leadership)
        self.leading = leadership
        while not leadership.is_over and not self.resign.wait(0.02):
            pass
        self.leading = None

    def close(self) -> None:
        self.resign.set()
        self.candidate.close()
        self.coordination.close()


Contend = Callable[[str], Contender]


@pytest.fixture
def contend(settings: Settings) -> Iterator[Contend]:
    with ExitStack() as made:
        yield lambda name: made.enter_context(closing(Contender(settings, name)))


@pytest.fixture
def watcher(settings: Settings) -> Iterator[Coordination]:
    with closing(Coordination(settings, SESSION_S)) as coordination:
        coordination.start(60.0)
        # Agents of other tests have left theirs on this cluster.
        client = coordination.client
        client.ensure_path(ASSIGNMENTS)
        for name in client.get_children(ASSIGNMENTS):
            client.delete(f"{ASSIGNMENTS}/{name}", recursive=True)
        yield coordination
        client.delete(ASSIGNMENTS, recursive=True)


def test_one_leads_and_another_when_its_session_has_ended(
    contend: Contend, watcher: Coordination
) -> None:
    first = contend("first")
    until(lambda: first.leads, "the first leads")
    second, third = contend("second"), contend("third")
    until(lambda: len(watcher.client.get_children(LEADER)) == 3, "all stand")
    old = first.leading
    assert old is not None
    old.confirm()
    assert old.is_sure
    expire(first.coordination)
    new = until(lambda: second.leading or third.leading, "another leads")
    assert new.epoch > old.epoch
    assert old.is_over and not old.is_sure
    until(lambda: first.leading is None, "the first has noticed")
    # It stands again in its new session, at the end of the queue.
    until(lambda: len(watcher.client.get_children(LEADER)) == 3, "it stands again")
    assert sum(each.leads for each in (first, second, third)) == 1


def test_who_was_leader_writes_nothing(contend: Contend, watcher: Coordination) -> None:
    """As one that was frozen: its session lives again, and it has not noticed."""
    first = contend("first")
    old: Leadership = until(lambda: first.leading, "the first leads")
    old.write({"h-1": Plan(epoch=old.epoch, roles=(ROLE,))})
    before = watcher.client.get(f"{ASSIGNMENTS}/h-1")
    watcher.client.set(EPOCH, b"somebody else was elected")
    for plans in (
        {"h-1": Plan(epoch=old.epoch)},
        {"h-1": None},
        {"h-2": Plan(epoch=old.epoch)},
        {"h-2": Plan(epoch=old.epoch), "h-1": None},
    ):
        with pytest.raises(Fenced):
            old.write(plans)
    assert watcher.client.get(f"{ASSIGNMENTS}/h-1") == before
    assert watcher.client.get_children(ASSIGNMENTS) == ["h-1"]
    with pytest.raises(Fenced):
        old.confirm()


def test_all_of_a_transaction_is_written_or_nothing(
    contend: Contend, watcher: Coordination
) -> None:
    leader = contend("leader")
    term: Leadership = until(lambda: leader.leading, "it leads")
    plan = Plan(epoch=term.epoch, roles=(ROLE,))
    term.write({"h-1": plan, "h-2": plan})
    watcher.client.create(f"{ASSIGNMENTS}/h-2/in-the-way")
    with pytest.raises(KazooException):
        term.write({"h-1": None, "h-2": None, "h-3": plan})
    assert set(watcher.client.get_children(ASSIGNMENTS)) == {"h-1", "h-2"}


def test_a_leader_whose_epoch_cannot_be_asked_for_is_not_sure_for_long(
    contend: Contend,
) -> None:
    leader = contend("leader")
    term: Leadership = until(lambda: leader.leading, "it leads")
    term.confirm()
    assert term.is_sure
    leader.coordination.session_s = MARGIN_S + 0.2
    term.confirm()
    until(lambda: not term.is_sure, "certainty ends by itself")


HOSTILE = [
    b"",
    b"{",
    b"[" * 60_000,
    b"\xff\xfe",
    b"null",
    b'{"epoch": 1e400}',
    b'{"epoch": -1, "roles": []}',
    b'{"epoch": "7", "roles": []}',
    b'{"epoch": 9223372036854775808, "roles": []}',
    b'{"epoch": 7, "roles": [{"experiment": "../../etc", "run_id": "r", "role": '
    b'"worker", "index": 0, "spec_offset": 1, "digest": "ab"}]}',
    b'{"epoch": 7, "roles": [{"experiment": "a", "run_id": "../x", "role": "worker", '
    b'"index": 0, "spec_offset": 1, "digest": "ab"}]}',
    b'{"epoch": 7, "roles": [{"experiment": "a", "run_id": "r", "role": "shell", '
    b'"index": 0, "spec_offset": 1, "digest": "ab"}]}',
    b'{"epoch": 7, "roles": [' + b"{}," * 300_000 + b"{}]}",
]


def test_hostile_nodes_are_passed_over(
    contend: Contend, watcher: Coordination, settings: Settings
) -> None:
    leader = contend("leader")
    term: Leadership = until(lambda: leader.leading, "it leads")
    facts = facts_of_this_process(Capacity(cpu=2.0), {"zone": "a"})
    client = watcher.client
    until(lambda: not client.get_children(AGENTS), "no other test's is there yet")
    client.create(f"{AGENTS}/good", facts.to_json(), ephemeral=True)
    for number, value in enumerate(HOSTILE):
        client.create(f"{AGENTS}/bad-{number}", value[:900_000], ephemeral=True)
        client.create(f"{ASSIGNMENTS}/bad-{number}", value[:900_000])
    found = term.read()
    assert found.agents.keys() == {"good"}
    assert set(found.plans.values()) == {None}
    term.write({f"bad-{number}": None for number in range(len(HOSTILE))})
    assert client.get_children(ASSIGNMENTS) == []


@pytest.fixture
def watch(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlanWatch]:
    monkeypatch.setattr(plan_watch, "_HEAL_S", 0.2)
    with ExitStack() as started:
        coordination = started.enter_context(closing(Coordination(settings, SESSION_S)))
        coordination.name = "h-1"
        coordination.start(60.0)
        facts = facts_of_this_process(Capacity(cpu=2.0), {})
        found = PlanWatch(coordination, facts)
        thread = threading.Thread(target=found.run, daemon=True)
        thread.start()
        started.callback(thread.join, 60)
        started.callback(found.close)
        until(lambda: found.orders.sure_until_s > 0, "it is registered")
        yield found


def test_an_agent_keeps_its_plan_whatever_stands_there(
    watch: PlanWatch, watcher: Coordination
) -> None:
    client, path = watcher.client, f"{ASSIGNMENTS}/h-1"
    assert not watch.orders.may_start, "there is no plan"
    good = Plan(epoch=8, roles=(ROLE,))
    client.create(path, good.to_json(), makepath=True)
    until(lambda: watch.orders.plan == good, "the plan is seen")
    assert watch.orders.may_start
    for value in [*HOSTILE, Plan(epoch=7).to_json()]:
        client.set(path, value[:900_000])
        seen_s = watch.orders.sure_until_s
        until(lambda seen=seen_s: watch.orders.sure_until_s > seen, "a look at it")
        assert watch.orders.plan == good, value[:80]
    newer = Plan(epoch=9)
    client.set(path, newer.to_json())
    until(lambda: watch.orders.plan == newer, "the newer plan is seen")
    client.delete(path)
    until(lambda: watch.orders.plan is None, "there is none")
    assert not watch.orders.may_start


def test_a_role_is_left_to_who_still_has_it(
    watch: PlanWatch, watcher: Coordination
) -> None:
    watcher.name = "h-2"
    watcher.register_role("held", "worker/0", 41)
    key = RoleKey("held", "worker", 0)
    watcher.client.create(
        f"{ASSIGNMENTS}/h-1", Plan(epoch=8, roles=(ROLE,)).to_json(), makepath=True
    )
    until(lambda: watch.orders.elsewhere == {key}, "it is seen elsewhere")
    watcher.forget_role("held", "worker/0")
    until(lambda: not watch.orders.elsewhere, "it is free")
    watch.report({key: 42}, {})
    ours = {"worker-0": {"agent": "h-1", "pid": 42}}
    until(lambda: watcher.live_roles("held") == ours, "it is registered")


def test_the_node_of_another_agent_is_not_taken_away(
    watch: PlanWatch, watcher: Coordination
) -> None:
    """Back from a lost session, while another has the role: theirs stands."""
    watcher.name = "h-2"
    key, path = RoleKey("held", "worker", 0), f"{ROLES}/held/worker-0"
    watch.report({key: 42}, {})
    until(lambda: watcher.live_roles("held"), "it is registered")
    watcher.client.delete(path)
    watcher.register_role("held", "worker/0", 77)
    expire(watch._coordination)
    # Since its new session is certain it has looked what is missing several times.
    for _ in range(3):
        healed_s = watch._healed_at_s
        until(lambda seen=healed_s: watch._healed_at_s > seen, "it has looked")
    assert watcher.live_roles("held")["worker-0"] == {"agent": "h-2", "pid": 77}
    watcher.forget_role("held", "worker/0")
    ours = {"worker-0": {"agent": "h-1", "pid": 42}}
    until(lambda: watcher.live_roles("held") == ours, "it is registered again")
