"""How soon each role is useful again; the learner with a million rows to restore.

The limits are generous, and more so on a machine that has other work: the times that
count are in the report.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.settings import Settings
from tests.chaos.checks import check_all
from tests.chaos.harness import Harness
from tests.chaos.recovery import recoveries_s

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]
ROWS = 1_000_000  # of which one in 15 is a reset
BIG = {
    "workers": {
        "replicas": 2,
        "envsPerWorker": 16,
        "unrollLength": 32,
        "maxEnvStepsPerS": 0,
    },
    "processor": {"replicas": 2},
    "learner": {
        "replay": {"capacity": ROWS, "minSize": 2_000},
        "samplesPerInsert": 0.02,
        "checkpointIntervalS": 5.0,
    },
}
TARGETS_S = {"worker": 3.0, "processor": 10.0, "learner": 5.0}
GENEROUSLY = 3.0


def limit_s(role: str) -> float:
    """The target, times what else the machine has to do."""
    share = os.getloadavg()[0] / (os.cpu_count() or 1)
    return GENEROUSLY * TARGETS_S[role] * max(1.0, share)


@pytest.mark.timeout(900)
def test_a_learner_with_a_million_transitions_is_soon_back(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with Harness(settings, tmp_path, spec=BIG) as harness:
        harness.start()
        harness.wait_until(
            lambda: (
                harness.watch.follower.progress.learner("buffer_rows") >= 0.9 * ROWS
            ),
            600.0,
            "the buffer is full",
        )
        for _ in range(2):
            checkpoints = saved(harness)
            harness.wait_until(lambda n=checkpoints: saved(harness) > n, 60.0, "a save")
            harness.kill("learner")
            harness.wait_for_progress(updates=20, trained=2_000, timeout_s=120.0)
        restored = harness.watch.follower.progress.learner("buffer_rows")
        evidence = harness.finish()
    times = [s for fault, s in recoveries_s(evidence) if fault.role == "learner"]
    # Row by row in plain Python, a million would take too long.
    findings = check_all(evidence, without=["C2", "C3", "C7"])
    cpu_s = [
        next(life.of("update"))["cpu_s"]
        for life in evidence.lives
        if life.role.startswith("learner")
    ][1:]
    note = f"{restored:,.0f} rows; s on the wall {times}, of the processor {cpu_s}"
    record_fault("R-learner", evidence, findings=len(findings), note=note)
    assert findings == []
    assert restored >= 0.85 * ROWS
    assert evidence.summary["unrestorable_rows"] == 0
    assert min(times) <= limit_s("learner")
    # Whatever else the machine does meanwhile.
    assert min(cpu_s) <= TARGETS_S["learner"]


def saved(harness: Harness) -> int:
    """How many checkpoints were made durable."""
    lives = harness.journals.lives("learner")
    return sum(1 for life in lives for _ in life.of("durable"))


@pytest.mark.timeout(600)
def test_a_worker_and_a_processor_are_soon_back(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with Harness(settings, tmp_path) as harness:
        harness.start()
        for role in ("worker", "processor", "worker", "processor"):
            harness.kill(role, 1)
            harness.wait_for_progress(acked=3_000, trained=3_000, timeout_s=120.0)
        evidence = harness.finish()
    assert check_all(evidence) == []
    for role in ("worker", "processor"):
        times = [s for fault, s in recoveries_s(evidence) if fault.role == role]
        record_fault(f"R-{role}", evidence, recovery_s=min(times), note=f"{times}")
        assert min(times) <= limit_s(role)
