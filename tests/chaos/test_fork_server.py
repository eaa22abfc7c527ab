"""The process that workers are forked from is killed while all of it works."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from infra.control.forked import EXIT_UNKNOWN, ForkedProcess
from infra.control.spawning import ForkServerSpawner
from infra.settings import Settings
from tests.chaos.checks import assert_clean
from tests.chaos.harness import SHARED_S, Harness

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]


@pytest.mark.timeout(900)
def test_workers_end_with_their_fork_server_and_come_back_from_another(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with Harness(settings, tmp_path, spec={"workers": {"replicas": 2}}) as harness:
        harness.start()
        spawner = harness.supervisor._own_spawner
        assert isinstance(spawner, ForkServerSpawner) and spawner.server is not None
        workers = harness.pids("worker")
        killed = spawner.server.pid
        harness.injected("kill", "fork server", pid=killed)
        # Their end is no failure of theirs: they are started again at once.
        harness.supervisor._harmed.update(workers.values())
        os.kill(killed, signal.SIGKILL)
        for pid in workers.values():
            harness.wait_for_end(pid)
        harness.wait_until(harness.workers_are_back, 120.0, "the workers are back")
        harness.wait_for_progress(acked=500, trained=500)
        children = harness.supervisor._children
        again = [children[assignment].process for assignment in workers]
        assert all(isinstance(each, ForkedProcess) for each in again)
        assert spawner.server.pid != killed
        ends = {end.pid: end.code for end in harness.supervisor.ended}
        assert ends == dict.fromkeys(workers.values(), EXIT_UNKNOWN)
        evidence = harness.finish(SHARED_S, SHARED_S)
    record_fault("F01 (fork server)", evidence)
    assert_clean(evidence)
