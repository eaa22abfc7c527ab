"""ZooKeeper goes away; the holder of a run's claim is frozen until another has it."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from infra.cluster.local import LocalCluster
from infra.cluster.process import command_line
from infra.control.coordination import SESSION_S
from infra.kafka.reading import read_to_end
from infra.settings import Settings
from schemas.codec import decode
from schemas.records import Member
from schemas.topics import MEMBERS, topic_name
from tests.chaos.evidence import Evidence
from tests.chaos.watching import ends_of
from tests.integration.processor_rig import wait_until
from tests.integration.test_end_to_end import Command
from tests.role_processes import role_of, words_of
from tests.zookeeper_harm import zookeeper_frozen, zookeeper_killed

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]

AWAY_S = 2 * SESSION_S
# A worker that may step sends several unrolls a second; a busy machine is slower.
MAX_STALL_S = 5.0
PARTITIONS = 8
# A role needs a second or two to start and register; a busy machine, more.
WITHOUT_S = 8.0
# Two workers: a minute and a half, while a second run is tried after 40 s and more.
ENV_STEPS = 90_000
SLOWLY = (
    *("--set", "spec.workers.maxEnvStepsPerS=500"),
    *("--set", "spec.workers.unrollLength=16"),
    *("--set", "spec.learner.checkpointIntervalS=2"),
    *("--set", f"spec.stop={{envSteps: {ENV_STEPS}}}"),
)

Launch = Callable[..., Command]


@pytest.fixture
def launch(settings: Settings, tmp_path: Path) -> Iterator[Launch]:
    started: list[Command] = []

    def start(name: str) -> Command:
        log = tmp_path / f"{name}-{len(started)}.log"
        started.append(Command(name, *SLOWLY, log=log))
        return started[-1]

    yield start
    for command in started:
        if command.process.poll() is None:
            command.process.send_signal(signal.SIGCONT)
        command.end()


@contextmanager
def undone(harm: Callable[[], Callable[[], None]]) -> Iterator[Callable[[], None]]:
    """Harms; the mending is done at the end unless it was before."""
    mend = harm()
    mended: list[bool] = []

    def once() -> None:
        if not mended:
            mended.append(True)
            mend()

    try:
        yield once
    finally:
        once()


@pytest.mark.parametrize("harm", [zookeeper_killed, zookeeper_frozen])
def test_the_data_plane_flows_while_zookeeper_is_away(
    harm: Callable[[LocalCluster], Callable[[], None]],
    launch: Launch,
    local_cluster: LocalCluster,
    settings: Settings,
    record_fault,
) -> None:
    what = harm.__name__.replace("_", "-")
    name = f"{what}-{secrets.token_hex(3)}"
    run = launch(name)
    run.wait_for(lambda: run.figures()[1] > 0)
    roles = run.roles()
    with undone(lambda: harm(local_cluster)) as mend:
        stall_s, unrolls = longest_stall_s(settings, name, AWAY_S)
        mend()
    assert run.process.poll() is None, run.log.read_text()
    assert run.roles() == roles, "nobody was restarted"
    assert stall_s < MAX_STALL_S
    survivor = survivor_of(run, launch(name))
    code, summary = survivor.finish()
    assert code == 0, survivor.log.read_text()
    assert summary["lost_steps"] == 0
    assert "Traceback" not in run.log.read_text()
    note = f"{unrolls} batches while it was away; longest stall {stall_s:.1f} s"
    record_fault(
        f"F28 ({what})",
        nothing(name),
        what=what,
        injected=1,
        findings=0,
        note=note,
    )


def survivor_of(run: Command, other: Command) -> Command:
    """The one of two runs that goes on; the second may have been first at the claim."""
    wait_until(
        lambda: run.process.poll() is not None or other.process.poll() is not None,
        120.0,
        "one of two runs gives way",
    )
    if run.process.poll() is None:
        assert other.process.returncode == 1
        assert "expected nobody to run it" in other.log.read_text()
        return run
    assert run.process.returncode == 1
    assert "another process has claimed it" in run.log.read_text()
    return other


def nothing(name: str) -> Evidence:
    """These runs are judged by their own summaries, not by journals."""
    return Evidence(name, n_step=0, gamma=0.0, reward_scale=0.0)


def longest_stall_s(settings: Settings, name: str, for_s: float) -> tuple[float, int]:
    """Watches the replay topic; returns how long it stood still, and what came."""

    def end() -> int:
        return sum(ends_of(settings, name, "learner", PARTITIONS))

    began_s = changed_s = time.monotonic()
    first = newest = end()
    stall_s = 0.0
    while (now_s := time.monotonic()) - began_s < for_s:
        if (found := end()) != newest:
            newest, changed_s = found, now_s
        stall_s = max(stall_s, now_s - changed_s)
        time.sleep(0.1)
    return stall_s, newest - first


def test_a_frozen_run_that_comes_back_changes_nothing_once_another_has_its_claim(
    launch: Launch, local_cluster: LocalCluster, settings: Settings, record_fault
) -> None:
    """It comes back while ZooKeeper is away, and cannot ask whose the claim is."""
    name = f"frozen-holder-{secrets.token_hex(3)}"
    old = launch(name)
    old.wait_for(lambda: old.figures()[1] > 0)
    theirs = children(old)
    old.process.send_signal(signal.SIGSTOP)
    new = launch(name)
    new.wait_for(lambda: pids_of_members(settings, name) <= children(new))
    theirs |= children(new)
    old.wait_for(lambda: not live(children(old) - {processor(old)}))
    with undone(lambda: zookeeper_frozen(local_cluster)):
        old.process.send_signal(signal.SIGCONT)
        time.sleep(WITHOUT_S)  # it would have started what has ended
        assert live(children(old)) <= theirs, "the old run starts nobody"
    code, _ = old.finish(timeout_s=60)
    assert code != 0 and "another process has claimed it" in old.log.read_text()
    code, summary = new.finish()
    assert code == 0, new.log.read_text()
    assert summary["lost_steps"] == 0
    assert "ended with code" not in new.log.read_text(), "it fenced none of the new"
    assert {member.pid for member in members(settings, name)} == theirs
    record_fault(
        "F28 (frozen holder)", nothing(name), what="freeze run", injected=1, findings=0
    )
    assert "Traceback" not in old.log.read_text() + new.log.read_text()


def processor(command: Command) -> int:
    """Its processor is not fenced: all of a group may work."""
    return next(p for p in children(command) if role_of_pid(p) == "processor/0")


def role_of_pid(pid: int) -> str | None:
    return role_of(words_of(command_line(pid)))


def live(pids: set[int]) -> set[int]:
    """Those that still run."""
    return {pid for pid in pids if command_line(pid)}


def members(settings: Settings, name: str) -> list[Member]:
    topic = topic_name(MEMBERS, name)
    return [decode(m.value, Member) for m in read_to_end(settings, topic)]


def pids_of_members(settings: Settings, name: str) -> set[int]:
    """The pids of those who registered last, by role and index."""
    newest = {(m.role, m.index): m.pid for m in members(settings, name)}
    return set(newest.values())


def children(command: Command) -> set[int]:
    """The role processes under a run: its children, and its fork server's."""
    everything = psutil.Process(command.process.pid).children(recursive=True)
    return {each.pid for each in everything if role_of_pid(each.pid)}
