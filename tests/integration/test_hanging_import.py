"""A module of the machine's that hangs at import holds up workers, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.monitoring.role_views import read_statuses
from infra.settings import Settings
from tests.integration.agent_rig import Fleet, small, until

pytestmark = pytest.mark.kafka

WAITS = "tests.unit.waits_at_import"


def test_an_agent_goes_on_and_starts_the_workers_once_it_is_imported(
    fleet: Fleet, settings: Settings, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    fleet.start(
        "--capacity", "cpu=4", ROLLSTREAM_ENV_MODULES=WAITS, WAITS_FOR=str(gate)
    )
    published = fleet.launch(small("hanging"))

    def worker():
        stated = read_statuses(settings, "hanging", published.run_id)
        found = stated.get("worker/0")
        return found and found.status

    until(lambda: worker() and worker().state == "starting", "it waits, and says so")
    # The others do not wait for it, and nobody takes it for a process that lives.
    until(lambda: len(fleet.registered("hanging")) == 2, "the others run")
    assert sorted(fleet.processes("hanging")) == ["learner/0", "processor/0"]
    assert worker().state == "starting" and worker().pid == -1

    gate.touch()
    until(lambda: fleet.runs_as_planned("hanging", 3), "all of them run")
    (pid,) = fleet.processes("hanging")["worker/0"]
    assert fleet.registered("hanging")["worker-0"]["pid"] == pid
    until(lambda: worker().state == "running" and worker().pid == pid, "it is told")
    assert len([e for e in fleet.events("hanging", "started")]) == 3
    assert fleet.events("hanging", "restarted") == []
