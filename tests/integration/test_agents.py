"""Agents and their leader as processes, on the real cluster: what they withstand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from infra.cluster.local import LocalCluster
from infra.control.agent import SESSION_S
from infra.control.deletion import find_belongings
from infra.control.desired import PublishedExperiment
from infra.control.edits import in_state, scaled
from infra.control.experiments import read_experiment
from infra.control.launching import change
from infra.control.statuses import summary_of
from infra.control.znodes import ASSIGNMENTS, EPOCH
from infra.kafka.clients import Traffic, make_producer
from infra.kafka.delivery import Sender
from infra.settings import Settings
from schemas.codec import encode
from schemas.experiment import Experiment
from schemas.records import ExperimentSpec, RoleStatus
from schemas.role_parts import role_digest
from schemas.topics import EXPERIMENTS, topic_name
from tests.integration.agent_rig import AgentProcess, Fleet, small, until
from tests.zookeeper_harm import zookeeper_frozen, zookeeper_killed

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

# From the contract; what a session's end needs on top on a busy machine.
MOVED_WITHIN_S = 15.0
ELECTED_WITHIN_S = SESSION_S + 4.0
ROLES = 3


@pytest.fixture
def sender(settings: Settings) -> Sender:
    return Sender(
        make_producer(settings, client_id="test-specs", traffic=Traffic.CONTROL)
    )


def running(fleet: Fleet, *names: str, roles: int = ROLES) -> dict[str, list[int]]:
    """Wait until all roles run; return the pids of the first."""
    for name in names:
        until(lambda name=name: fleet.runs_as_planned(name, roles), f"{name} runs")
    return fleet.processes(names[0])


def follower_of(fleet: Fleet) -> tuple[AgentProcess, AgentProcess]:
    """Return (the leader, the other) of two agents."""
    first, second = fleet.agents[-2:]
    # Not one that an earlier test has killed, and whose session lasts.
    until(lambda: fleet.leader() in (first.name, second.name), "one of them leads")
    return (first, second) if first.name == fleet.leader() else (second, first)


def two_agents(fleet: Fleet) -> tuple[AgentProcess, AgentProcess]:
    for _ in range(2):
        fleet.start("--capacity", "cpu=4")
    names = {agent.name for agent in fleet.agents[-2:]}
    until(lambda: names <= fleet.alive(), "both are registered")
    return follower_of(fleet)


def test_launch_scale_pause_finish_and_a_goodbye(
    fleet: Fleet, settings: Settings
) -> None:
    """One agent, one experiment, from its launch to its end."""
    name = fleet.named("whole")
    agent = fleet.start("--capacity", "cpu=4")
    fleet.launch(small(name))
    before = running(fleet, name)

    change(settings, name, lambda e: scaled(e, {"workers": 3}))
    after = running(fleet, name, roles=5)
    assert before.items() <= after.items(), "a scale restarts nobody"
    change(settings, name, lambda e: in_state(e, "paused"))
    until(lambda: fleet.is_in(name, "paused"), "paused")
    change(settings, name, lambda e: scaled(e, {"workers": 1}))
    assert running(fleet, name) == before
    change(settings, name, lambda e: in_state(e, "running"))

    fleet.launch(small(name, "spec.stop={envSteps: 64}"))
    state = until(
        lambda: fleet.is_in(name, "finished") and fleet.state(name), "finished"
    )
    summary = summary_of(state)
    assert summary is not None and summary.reached and summary.env_steps >= 64
    assert summary.lost_steps == 0
    assert fleet.processes(name) == {} == fleet.registered(name)
    # A worker registers again when it goes on after a pause; it is the same process.
    started = {member.pid for member in fleet.members(name)}
    assert len(started) == 5, "nobody was started twice"
    (event,) = until(lambda: fleet.events(name, "finished"), "it is told of")
    assert event.kind == "finished"

    assert agent.stop() == 143
    assert agent.name not in fleet.alive(), "its node is gone with it"


@pytest.mark.heavy
def test_who_leads_next_does_not_begin_again_what_is_finished(fleet: Fleet) -> None:
    name = fleet.named("over")
    agent = fleet.start("--capacity", "cpu=4")
    fleet.launch(small(name, "spec.stop={envSteps: 64}"))
    until(lambda: fleet.is_in(name, "finished"), "finished")
    assert agent.stop() == 143
    epoch = fleet.epoch()
    fleet.start("--capacity", "cpu=4")
    until(lambda: fleet.epoch() > epoch, "another leads")
    until(lambda: fleet.plans().get(fleet.agents[-1].name), "it has planned")
    time.sleep(3.0)  # several ticks
    assert fleet.placed(name) == {} == fleet.processes(name)
    assert len({member.pid for member in fleet.members(name)}) == ROLES


def publish(sender: Sender, key: str, value: bytes | None) -> int:
    return sender.send_and_wait(topic_name(EXPERIMENTS), value, key)


def spec_record(known: Experiment, /, **other: object) -> bytes:
    values = {
        "experiment": known.name,
        "run_id": "r1",
        "spec": known.to_json(),
        "replaces": -1,
        "created_at_ms": 0,
        "managed_by": "agents",
    }
    return encode(ExperimentSpec(**{**values, **other}))  # type: ignore[arg-type]


def hostile_specs(known: PublishedExperiment) -> list[bytes]:
    experiment = known.experiment
    text, newest = experiment.to_json(), known.offset
    deep = "[" * 100_000
    return [
        b"\x00\x01garbage",
        b"",
        spec_record(experiment, spec=text.replace("CartPole-v1", "os:system")),
        spec_record(experiment, spec=deep, replaces=newest),
        spec_record(experiment, spec=" " * 300_000 + text, replaces=newest),
        spec_record(experiment, run_id="../../../tmp/x", replaces=newest),
        spec_record(experiment, experiment="another", replaces=newest),
        spec_record(experiment, run_id=known.run_id, replaces=10**15),  # stale
        spec_record(experiment, managed_by="root", replaces=newest),
        spec_record(
            experiment,
            spec=text.replace('"batchSize":32', '"batchSize":-1'),
            replaces=newest,
        ),
    ]


def test_hostile_specs_are_told_of_and_change_nothing(
    fleet: Fleet, settings: Settings, sender: Sender
) -> None:
    name = fleet.named("attacked")
    nonsense = fleet.named("nonsense")
    agent = fleet.start("--capacity", "cpu=4")
    known = fleet.launch(small(name))
    before = running(fleet, name)
    offset = 0
    for value in hostile_specs(known):
        offset = publish(sender, name, value)
    for key in ("../../evil", "rollstream.experiments", "\x00", "x" * 5_000, "A B"):
        publish(sender, key, spec_record(known.experiment))
    publish(sender, nonsense, b"\x00nonsense")
    fleet.experiments.append(nonsense)

    until(lambda: fleet.is_in(nonsense, "refused"), "the unknown one is refused")
    reason = f"the spec at offset {offset} is refused: "
    until(
        lambda: (told := fleet.state(name)) and reason in told.reason,
        "the newest refusal is in the status",
    )
    assert fleet.is_in(name, "running")
    assert fleet.processes(name) == before, "nobody was touched"
    assert agent.process.poll() is None
    until(lambda: fleet.events(name, "refused"), "there is an event")
    # Compaction keeps the newest record: a good one stands behind the refused.
    until(
        lambda: read_experiment(settings, name).offset > offset,
        "what is in force was put behind it",
    )
    assert read_experiment(settings, name).experiment == known.experiment
    good = small(name, "spec.learner.learningRate=5e-4")
    fleet.launch(good)
    until(
        lambda: (told := fleet.state(name)) and reason not in told.reason,
        "a good spec ends the talk of the bad one",
    )

    publish(sender, name, None)
    until(lambda: not fleet.processes(name), "a raw tombstone ends its roles")
    until(lambda: not find_belongings(settings, name), "and cleans up")
    assert agent.process.poll() is None, agent.text


def test_nothing_is_started_of_what_cannot_run_whole(
    fleet: Fleet, sender: Sender
) -> None:
    """A spec written straight to the topic fits on no agent; and another does."""
    lacking = fleet.named("raw")
    whole = fleet.named("whole")
    fleet.start("--capacity", "cpu=1,gpu=0")
    raw = small(lacking, "spec.learner.resources={gpu: 1}")
    publish(sender, lacking, spec_record(raw))
    fleet.experiments.append(lacking)
    until(lambda: fleet.is_in(lacking, "pending"), "pending")
    state = until(
        lambda: (told := fleet.state(lacking)) and "lacks" in told.reason and told,
        "it says what for",
    )
    assert "learner/0: no agent fits" in state.reason
    assert "lacks gpu 1 (free 0)" in state.reason
    assert "processor/0 and worker/0: waits for a place for learner/0" in state.reason
    # There is room for four: two of the other would be in the way.
    fleet.launch(small(whole))
    running(fleet, whole)
    assert fleet.placed(lacking) == {} == fleet.processes(lacking)
    assert fleet.is_in(lacking, "pending")
    fleet.start("--capacity", "cpu=1,gpu=1")
    running(fleet, lacking)
    until(lambda: fleet.is_in(lacking, "running"), "it has what it lacked")


@pytest.mark.heavy
def test_what_one_host_cannot_start_runs_on_another(
    fleet: Fleet, tmp_path: Path
) -> None:
    """A file lies where its directory should be: not even root can write there."""
    name = fleet.named("homeless")
    bad_dir, good_dir = tmp_path / "bad", tmp_path / "good"
    obstacle = bad_dir / "experiments" / name
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("")
    leader = fleet.start("--capacity", "cpu=0")  # it only leads
    until(lambda: fleet.leader() == leader.name, "it leads")
    bad = fleet.start("--capacity", "cpu=4", ROLLSTREAM_DATA_DIR=str(bad_dir))
    until(lambda: bad.name in fleet.alive(), "it is registered")
    fleet.launch(small(name))

    def says_why() -> RoleStatus | None:
        told = fleet.state(name)
        return told if told and "cannot start it" in told.reason else None

    told = until(says_why, "alone it stays, and says why")
    assert told.state == "pending" and "Not a directory" in told.reason
    assert set(fleet.placed(name).values()) == {bad.name}
    assert fleet.processes(name) == {} and fleet.events(name, "moved") == []

    good = fleet.start("--capacity", "cpu=2", ROLLSTREAM_DATA_DIR=str(good_dir))
    before = running(fleet, name)
    assert set(fleet.placed(name).values()) == {good.name}
    until(lambda: fleet.is_in(name, "running"), "it runs")
    moved = until(
        lambda: len(found := fleet.events(name, "moved")) == ROLES and found, "told"
    )
    for event in moved:
        assert f"from {bad.name}, which cannot start it (" in event.reason
        assert event.reason.endswith(f"to {good.name}")
    # Nothing is wrong with the host for others.
    housed = fleet.named("housed")
    fleet.launch(small(housed))
    running(fleet, housed)
    assert bad.name in fleet.placed(housed).values()

    epoch = fleet.epoch()
    os.kill(leader.pid, signal.SIGKILL)
    until(lambda: fleet.epoch() > epoch, "another leads", ELECTED_WITHIN_S)
    until(lambda: leader.name not in fleet.plans(), "it has planned")
    time.sleep(3.0)  # several ticks
    assert fleet.processes(name) == before
    assert len(fleet.events(name, "moved")) == ROLES, "nobody moves for that"

    obstacle.unlink()
    os.kill(good.pid, signal.SIGKILL)
    until(lambda: good.name not in fleet.plans(), "it is gone")
    running(fleet, name, housed)
    assert set(fleet.placed(name).values()) == {bad.name}, "it can start it by now"


@pytest.mark.heavy
def test_two_agents_three_experiments_one_agent_killed(fleet: Fleet) -> None:
    _, other = two_agents(fleet)
    names = [fleet.named(word) for word in ("shared-a", "shared-b", "shared-c")]
    for name in names:
        fleet.launch(small(name))
    running(fleet, *names)
    before = {name: fleet.processes(name) for name in names}
    places = {name: fleet.placed(name) for name in names}
    assert len({agent for each in places.values() for agent in each.values()}) == 2
    gone, epoch = other.name, fleet.epoch()
    os.kill(other.pid, signal.SIGKILL)
    killed_s = time.monotonic()

    def moved() -> bool:
        return all(gone not in fleet.placed(name).values() for name in names)

    until(moved, "its roles have another place", MOVED_WITHIN_S)
    running(fleet, *names)
    took_s = time.monotonic() - killed_s
    print(f"moved and running after {took_s:.1f} s")
    assert fleet.epoch() == epoch, "the leader stayed"
    assert gone not in fleet.plans()
    for name in names:
        after = fleet.processes(name)
        for key, agent in places[name].items():
            if agent == gone:
                assert after[key] != before[name][key]
                kinds = [(e.role, e.index) for e in fleet.events(name, "moved")]
                assert tuple(key.split("/")) in [(r, str(i)) for r, i in kinds]
            else:
                assert after[key] == before[name][key], "others stay"
    assert took_s < MOVED_WITHIN_S


@pytest.mark.heavy
def test_another_leads_when_the_leader_is_killed(fleet: Fleet) -> None:
    name = fleet.named("led")
    leader, other = two_agents(fleet)
    fleet.launch(small(name))
    running(fleet, name)
    epoch = fleet.epoch()
    os.kill(leader.pid, signal.SIGKILL)
    killed_s = time.monotonic()
    until(lambda: fleet.epoch() > epoch, "another leads", ELECTED_WITHIN_S)
    print(f"elected after {time.monotonic() - killed_s:.1f} s")
    assert fleet.leader() == other.name
    until(lambda: set(fleet.plans()) == {other.name}, "all is planned by it")
    assert fleet.plans()[other.name].epoch == fleet.epoch()
    running(fleet, name)
    assert set(fleet.placed(name).values()) == {other.name}


@pytest.mark.heavy
def test_a_leader_that_was_frozen_changes_nothing_when_it_comes_back(
    fleet: Fleet,
) -> None:
    leader, other = two_agents(fleet)
    names = [fleet.named(word) for word in ("frozen-a", "frozen-b")]
    for name in names:
        fleet.launch(small(name))
    running(fleet, *names)
    places = {name: fleet.placed(name) for name in names}
    epoch = fleet.epoch()
    leader.signal(signal.SIGSTOP)
    until(lambda: fleet.epoch() > epoch, "another leads", ELECTED_WITHIN_S)

    # Its children go on; who takes their roles over fences them by incarnation.
    def taken_over() -> bool:
        places = [fleet.placed(name) for name in names]
        return all(set(each.values()) == {other.name} for each in places)

    until(taken_over, "all roles are given to the other")
    mine = {pid for name in names for pid in children_of(leader, name)}
    assert mine
    until(
        lambda: all(len(fleet.registered(name)) == ROLES for name in names),
        "all run there",
    )
    fenced = {"worker/0", "learner/0"}
    until(
        lambda: (
            not any(key in fenced for name in names for key in live_of(leader, name))
        ),
        "workers and learners of the frozen agent end by themselves",
    )

    new_epoch = fleet.epoch()
    writes = {name: fleet.zk.get(f"{ASSIGNMENTS}/{name}")[1] for name in fleet.plans()}
    assert writes.keys() == {other.name}
    steady = {name: pids_on(other, name) for name in names}
    leader.signal(signal.SIGCONT)
    until(lambda: leader.name in fleet.alive(), "it is registered again")
    until(lambda: leader.name in fleet.plans(), "it has a plan, which is empty")
    until(
        lambda: not any(live_of(leader, name) for name in names),
        "what it still ran has ended",
    )
    until(lambda: "term as the leader" in leader.text, "it has noticed")
    assert fleet.zk.exists(EPOCH).version == new_epoch
    assert {plan.epoch for plan in fleet.plans().values()} == {new_epoch}
    assert fleet.zk.get(f"{ASSIGNMENTS}/{other.name}")[1].mzxid == (
        writes[other.name].mzxid
    ), "nobody has written it again"
    assert {name: pids_on(other, name) for name in names} == steady, "nor fenced them"
    assert places != {name: fleet.placed(name) for name in names}
    assert leader.process.poll() is None and other.process.poll() is None


def children_of(agent: AgentProcess, experiment: str) -> dict[int, str]:
    """pid -> role/index of what an agent, or its fork server, has started."""
    found = {}
    for process in psutil.Process(agent.pid).children(recursive=True):
        with_zombies = psutil.STATUS_ZOMBIE
        try:
            words = " ".join(process.cmdline()).split()
            if process.status() == with_zombies or experiment not in words:
                continue
        except psutil.NoSuchProcess:
            continue
        if words[0] == "rollstream":
            found[process.pid] = words[1]
        elif "-m" in words and "--index" in words:
            module = words[words.index("-m") + 1]
            role = {"learner.train": "learner"}.get(module, "processor")
            found[process.pid] = f"{role}/{words[words.index('--index') + 1]}"
    return found


def live_of(agent: AgentProcess, experiment: str) -> set[str]:
    return set(children_of(agent, experiment).values())


def pids_on(agent: AgentProcess, experiment: str) -> set[int]:
    return set(children_of(agent, experiment))


@contextmanager
def undone(mend: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    finally:
        mend()


@pytest.mark.heavy
@pytest.mark.parametrize("harm", [zookeeper_killed, zookeeper_frozen])
def test_zookeeper_away_for_two_sessions(
    harm: Callable[[LocalCluster], Callable[[], None]],
    fleet: Fleet,
    local_cluster: LocalCluster,
) -> None:
    """Roles run on; one that ends meanwhile waits, and is started once afterwards."""
    two_agents(fleet)
    names = [fleet.named(word) for word in ("away-a", "away-b")]
    for name in names:
        fleet.launch(small(name))
    running(fleet, *names)
    for name in names:  # all that registers has registered
        until(lambda name=name: len(fleet.members(name)) == ROLES, "members")
    before = {name: fleet.processes(name) for name in names}
    places = {name: fleet.placed(name) for name in names}
    victim = before[names[0]]["worker/0"][0]
    with undone(harm(local_cluster)):
        away_s = time.monotonic()
        until(lambda: time.monotonic() - away_s > SESSION_S, "a session has passed")
        os.kill(victim, signal.SIGKILL)
        until(lambda: time.monotonic() - away_s > 2.5 * SESSION_S, "two and more")
        without = {name: fleet.processes(name) for name in names}
        assert "worker/0" not in without[names[0]], "nothing is started"
    expected = {name: dict(each) for name, each in before.items()}
    del expected[names[0]]["worker/0"]
    assert without == expected, "nobody was touched"

    running(fleet, *names)
    until(lambda: len(fleet.alive()) == 2, "both agents are registered")
    time.sleep(2 * SESSION_S)  # for whoever thinks that somebody is gone
    after = {name: fleet.processes(name) for name in names}
    started = after[names[0]].pop("worker/0")
    assert after == expected and started != [victim]
    assert {name: fleet.placed(name) for name in names} == places
    # A worker registers again when its stream was broken; the process is the same.
    started_pids = [{m.pid for m in fleet.members(name)} for name in names]
    assert list(map(len, started_pids)) == [ROLES + 1, ROLES], "one start, once"
    assert all(agent.process.poll() is None for agent in fleet.agents)


@pytest.mark.heavy
def test_of_ten_quick_changes_the_last_wins(fleet: Fleet, settings: Settings) -> None:
    name = fleet.named("hasty")
    two_agents(fleet)
    fleet.launch(small(name))
    running(fleet, name)
    rates = [f"{number + 1}e-4" for number in range(10)]
    for number, rate in enumerate(rates):
        published = fleet.launch(
            small(
                name,
                f"spec.learner.learningRate={rate}",
                f"spec.workers.replicas={1 + number % 3}",
                f"spec.workers.maxEnvStepsPerS={100 + number}",
            )
        )
    wanted = {
        role: role_digest(published.experiment, published.run_id, role)
        for role in ("learner", "worker", "processor")
    }

    def as_wanted() -> bool:
        planned = [
            role
            for plan in fleet.plans().values()
            for role in plan.roles
            if role.experiment == name
        ]
        return all(
            role.digest == wanted[role.role] and role.spec_offset == published.offset
            for role in planned
        ) and fleet.runs_as_planned(name, 3)

    assert published.experiment.spec.workers.replicas == 1
    until(as_wanted, "the last spec runs")
    stable = fleet.processes(name)
    time.sleep(4.0)
    assert fleet.processes(name) == stable, "it stays so, and there are no orphans"
    started = [each for agent in fleet.agents for each in agent.said[1:]]
    learner = [each["pid"] for each in started if each["kind"] == "started"
               and f"offset {published.offset}," in each["reason"]
               and each["role"] == "learner"]  # fmt: skip
    assert learner == stable["learner/0"]
