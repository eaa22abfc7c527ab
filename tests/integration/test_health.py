"""Processes that are frozen, fail or hang: found, started again, and not for ever."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from infra.cluster.local import LocalCluster
from infra.control.checkups import RECOVERY_S
from infra.monitoring.status import ExperimentStatus, read_status
from infra.settings import Settings
from rollstream.client import Client
from rollstream.status_command import status
from tests.integration.agent_rig import Fleet, small, until

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

DEAD_AFTER_S = 6
STUCK_AFTER_S = 8
# A process starts up to three times, with pauses that grow.
DEGRADED_WITHIN_S = 200.0
# From the contract, and what a busy machine needs on top.
FOUND_WITHIN_S = DEAD_AFTER_S + 5.0 + 5.0


def others_of(fleet: Fleet, name: str) -> dict[str, list[int]] | None:
    """All processes but the worker's, once they are there."""
    found = fleet.processes(name)
    return found if set(found) == {"learner/0", "processor/0"} else None


def pid_of(fleet: Fleet, name: str, role: str) -> int:
    pids = fleet.processes(name).get(role, [])
    return pids[0] if len(pids) == 1 else -1


def read_if(settings: Settings, name: str, state: str) -> ExperimentStatus | None:
    """Its status, once it is in a state and agents of other tests are forgotten."""
    found = read_status(settings, name)
    is_so = found.summary.state == state and len(found.agents or ()) == 1
    return found if is_so else None


@pytest.mark.heavy
def test_a_frozen_worker_is_found_and_started_again(
    fleet: Fleet, settings: Settings
) -> None:
    fleet.start("--capacity", "cpu=4")
    name = fleet.named("frozen")
    fleet.launch(small(name, f"spec.health.deadAfterS={DEAD_AFTER_S}"))
    until(lambda: fleet.runs_as_planned(name, 3), "it runs")
    until(
        lambda: read_status(settings, name).summary.env_steps > 0, "experience arrives"
    )
    before = fleet.processes(name)
    (victim,) = before["worker/0"]
    os.kill(victim, signal.SIGSTOP)
    frozen_s = time.monotonic()
    until(lambda: pid_of(fleet, name, "worker/0") not in (victim, -1), "started again")
    found_s = time.monotonic() - frozen_s
    print(f"found and started again after {found_s:.1f} s")
    assert DEAD_AFTER_S - 2.5 < found_s < FOUND_WITHIN_S
    (failed,) = until(lambda: fleet.events(name, "failed"), "it is told of")
    assert (failed.role, failed.index) == ("worker", 0)
    assert "killed: nothing heard for" in failed.reason
    after = fleet.processes(name)
    assert {r: p for r, p in after.items() if r != "worker/0"} == {
        r: p for r, p in before.items() if r != "worker/0"
    }, "nobody else was touched"
    steps = read_status(settings, name).summary.env_steps
    until(
        lambda: read_status(settings, name).summary.env_steps > steps + 32, "it goes on"
    )


def test_an_environment_that_cannot_be_made_degrades_its_experiment(
    fleet: Fleet, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = fleet.start("--capacity", "cpu=4", "--env-module", "tests.unit.envs")
    name = fleet.named("raising")
    broken = small(
        name,
        "spec.env.id=Misbehaving-v0",
        "spec.env.kwargs={how: raise-at-start}",
        "spec.health.maxFailures=3",
    )
    fleet.launch(broken)
    found = until(
        lambda: read_if(settings, name, "degraded"), "degraded", DEGRADED_WITHIN_S
    )
    assert "boom at start" in found.summary.reason
    assert "worker/0" in found.summary.reason
    (worker,) = [each for each in found.roles if each.role == "worker"]
    assert (worker.state, worker.restarts) == ("failed", 3)
    assert "boom at start" in worker.reason
    assert worker.told is not None and "given up after 3" in worker.told.reason
    assert found.pending == ("worker/0",)
    assert status(settings, name, as_json=False) == 3
    shown = capsys.readouterr().out
    assert "degraded: worker/0: " in shown
    assert "environment 0: ValueError('boom at start')" in shown
    assert status(settings, name, as_json=True) == 3
    assert json.loads(capsys.readouterr().out)["summary"]["state"] == "degraded"

    # Delays grew, and there is no crash loop: nothing is started any more.
    starts = [
        each
        for each in agent.said
        if each.get("role") == "worker" and each["kind"] in ("started", "restarted")
    ]
    assert len(starts) == 3
    others = until(lambda: others_of(fleet, name), "others")
    time.sleep(3.0)
    assert fleet.processes(name) == others
    degraded = until(lambda: fleet.events(name, "degraded"), "it is told of")
    assert [each.role for each in degraded] == ["experiment"]

    with Client(settings) as client:
        assert client.resume(name).changed
    until(
        lambda: sum("given up" in e.reason for e in fleet.events(name, "failed")) == 2,
        "somebody asked for another try",
    )


def test_an_environment_that_nobody_registers_is_not_tried_again(
    fleet: Fleet, settings: Settings
) -> None:
    agent = fleet.start("--capacity", "cpu=4")
    name = fleet.named("unknown")
    fleet.launch(small(name, "spec.env.id=Nowhere-v9"))
    found = until(
        lambda: read_if(settings, name, "degraded"), "degraded", DEGRADED_WITHIN_S
    )
    assert "worker/0: spec.env.id: expected a registered" in found.summary.reason
    (worker,) = [each for each in found.roles if each.role == "worker"]
    assert (worker.state, worker.restarts) == ("failed", 1), "once, not maxFailures"
    assert worker.told is not None
    assert "given up, for another start cannot mend it" in worker.told.reason
    until(lambda: others_of(fleet, name), "others")

    def starts() -> list[str]:
        kinds = [each["kind"] for each in agent.said if each.get("role") == "worker"]
        return [kind for kind in kinds if kind in ("started", "restarted")]

    time.sleep(3.0)
    assert starts() == ["started"]
    with Client(settings) as client:
        assert client.resume(name).changed
    until(lambda: len(starts()) == 2, "somebody asked for another try")


@pytest.mark.heavy
def test_a_learner_that_hangs_in_an_update_is_stuck(
    fleet: Fleet,
    settings: Settings,
    slowness: Path,
) -> None:
    fleet.start("--capacity", "cpu=4")
    name = fleet.named("hanging")
    fleet.launch(small(name, f"spec.health.stuckAfterS={STUCK_AFTER_S}"))
    until(lambda: read_status(settings, name).summary.updates > 0, "it learns")
    victim = pid_of(fleet, name, "learner/0")
    slowness.write_text("once 1e6")
    until(lambda: not slowness.exists(), "it hangs")
    hung_s = time.monotonic()
    (stuck,) = until(lambda: fleet.events(name, "stuck"), "it is found")
    print(f"found after {time.monotonic() - hung_s:.1f} s: {stuck.reason}")
    assert (stuck.role, stuck.index) == ("learner", 0)
    assert "nothing done for" in stuck.reason
    assert time.monotonic() - hung_s >= STUCK_AFTER_S - 1.0
    until(lambda: pid_of(fleet, name, "learner/0") not in (victim, -1), "started again")
    updates = read_status(settings, name).summary.updates
    until(lambda: read_status(settings, name).summary.updates > updates, "it goes on")
    assert fleet.events(name, "failed") == [], "nobody else was"


@pytest.mark.heavy
def test_nobody_is_dead_while_the_brokers_are_away(
    fleet: Fleet, settings: Settings, local_cluster: LocalCluster
) -> None:
    fleet.start("--capacity", "cpu=4")
    name = fleet.named("unheard")
    fleet.launch(small(name, "spec.health.deadAfterS=4"))
    until(lambda: fleet.runs_as_planned(name, 3), "it runs")
    until(lambda: read_status(settings, name).summary.env_steps > 0, "it works")
    before = fleet.processes(name)
    broker = local_cluster.pids()["kafka"]
    os.kill(broker, signal.SIGSTOP)
    try:
        away_s = time.monotonic()
        until(lambda: time.monotonic() - away_s > 20.0, "several times as long")
        assert fleet.processes(name) == before
    finally:
        os.kill(broker, signal.SIGCONT)
    steps = read_status(settings, name).summary.env_steps
    until(lambda: read_status(settings, name).summary.env_steps > steps, "it goes on")
    time.sleep(RECOVERY_S + 6.0)
    assert fleet.processes(name) == before
    assert fleet.events(name, "failed") == [] == fleet.events(name, "stuck")
