"""F05: a worker is frozen, given up for dead and replaced; then it comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.cluster.local import LocalCluster
from infra.control.coordination import SESSION_S
from infra.control.scheduler import Assignment
from infra.settings import Settings
from tests.chaos.checks import assert_clean
from tests.chaos.harness import ROOT, Harness
from tests.chaos.journal import Life

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]


@pytest.mark.timeout(600)
def test_a_frozen_worker_that_nobody_replaced_goes_on(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with Harness(settings, tmp_path, seed=5) as harness:
        harness.start()
        harness.freeze("worker", 1)
        # Twice a session: nothing else is waited for.
        with pytest.raises(AssertionError):
            harness.wait_until(lambda: False, 2 * SESSION_S, "the freeze")
        before = acked_by(harness, 1)
        harness.thaw("worker", 1)
        harness.wait_until(
            lambda: acked_by(harness, 1) > before + 100, 60.0, "it goes on"
        )
        harness.wait_for_load()
        evidence = harness.finish()
    record_fault("F05a", evidence, what="freeze worker 20 s, not replaced")
    assert_clean(evidence)


@pytest.mark.timeout(600)
def test_a_frozen_worker_that_was_replaced_is_fenced(
    settings: Settings, tmp_path: Path, local_cluster: LocalCluster, record_fault
) -> None:
    broker = local_cluster.pids()["kafka"]
    # No credit, so that it goes on while the learner hears nothing; and what nobody
    # holds back has to be little enough for a learner on a busy machine.
    free = {
        "flow": {"mode": "free"},
        "workers": {"maxEnvStepsPerS": 80},
        "learner": {"samplesPerInsert": 0.05},
    }
    with Harness(settings, tmp_path, spec=free, seed=6) as harness:
        harness.start()
        try:
            # So that it holds records that are not delivered when it is frozen.
            os.kill(broker, signal.SIGSTOP)
            sent = len(lines_of(harness, 1, "sent"))
            harness.wait_until(
                lambda: len(lines_of(harness, 1, "sent")) > sent + 2,
                60.0,
                "it sends on",
            )
            zombie = harness.freeze("worker", 1)
        finally:
            os.kill(broker, signal.SIGCONT)
        buffered = len(lines_of(harness, 1, "sent")) - len(lines_of(harness, 1, "ack"))
        with started_another(harness, 1) as replacement:
            harness.wait_until(
                lambda: any(
                    life.pid == replacement.pid and sum(1 for _ in life.of("ack")) > 3
                    for life in harness.journals.lives("worker-1")
                ),
                60.0,
                "the replacement works",
            )
            harness.supervisor.held.add(Assignment("worker", 1))
            harness.thaw("worker", 1)
            harness.wait_for_end(zombie)
            replacement.send_signal(signal.SIGTERM)
            assert replacement.wait(60.0) == 0
        harness.start_again("worker", 1)
        harness.wait_for_load()
        evidence = harness.finish()
    (end,) = [e for e in evidence.ended if e.pid == zombie]
    assert end.code == 1
    assert "to be its newest" in evidence.logs["worker/1"]
    evidence.ended.remove(end)  # as it should
    record_fault("F05", evidence, note=f"{buffered} records buffered when frozen")
    assert_clean(evidence)
    assert buffered > 0


def lines_of(harness: Harness, worker: int, kind: str) -> list[dict]:
    """Journal lines of a worker's lives."""
    lives: list[Life] = harness.journals.lives(f"worker-{worker}")
    return [line for life in lives for line in life.of(kind)]


def acked_by(harness: Harness, worker: int) -> int:
    return sum(line["valid"] for line in lines_of(harness, worker, "ack"))


@contextlib.contextmanager
def started_another(harness: Harness, index: int) -> Iterator[subprocess.Popen[bytes]]:
    """What another host's agent would do that takes the worker for dead."""
    with harness.supervisor.log_path(Assignment("worker", index)).open("ab") as log:
        replacement = subprocess.Popen(
            [
                sys.executable, "-m", "producers.worker",
                harness.name, "--index", str(index),
            ],
            env=harness.supervisor.environment(),
            stdout=log,
            stderr=log,
            cwd=ROOT,
        )  # fmt: skip
    try:
        yield replacement
    finally:
        replacement.kill()
        replacement.wait()
