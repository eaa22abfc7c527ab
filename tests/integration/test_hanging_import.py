"""A module of the machine's that hangs at import holds up workers, and nothing else."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from infra.monitoring.role_views import read_statuses
from infra.settings import Settings
from tests.integration.agent_rig import AgentProcess, Fleet, small, until

pytestmark = pytest.mark.kafka

WAITS = "tests.unit.waits_at_import"


class PatientAgent(AgentProcess):
    """Learners may take as long to start as workers are waited for."""

    module = "tests.integration.patient_agent"


def test_an_agent_goes_on_and_starts_the_workers_once_it_is_imported(
    fleet: Fleet, settings: Settings, tmp_path: Path
) -> None:
    name, gate = f"hanging-{uuid.uuid4().hex[:8]}", tmp_path / "gate"
    variables = {"ROLLSTREAM_ENV_MODULES": WAITS, "WAITS_FOR": str(gate)}
    agent = PatientAgent(tmp_path / "agent.log", "--capacity", "cpu=4", **variables)
    fleet.agents.append(agent)
    published = fleet.launch(small(name))

    def worker():
        assert agent.process.poll() is None, agent.text
        stated = read_statuses(settings, name, published.run_id)
        found = stated.get("worker/0")
        return found and found.status

    until(lambda: worker() and worker().state == "starting", "it waits, and says so")
    # The others do not wait for it, and nobody takes it for a process that lives.
    until(lambda: len(fleet.registered(name)) == 2, "the others run")
    assert sorted(fleet.processes(name)) == ["learner/0", "processor/0"]
    assert worker().state == "starting" and worker().pid == -1

    gate.touch()
    until(lambda: fleet.runs_as_planned(name, 3), "all of them run")
    (pid,) = fleet.processes(name)["worker/0"]
    assert fleet.registered(name)["worker-0"]["pid"] == pid
    until(lambda: worker().state == "running" and worker().pid == pid, "it is told")
    until(lambda: len(fleet.events(name, "started")) == 3, "all starts are told")
    assert fleet.events(name, "restarted") == []
