"""F04: SIGTERM and SIGINT to each kind of process under load: a clean place is left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from infra.settings import Settings
from tests.chaos.checks import assert_clean
from tests.chaos.evidence import Evidence, follow_training
from tests.chaos.harness import Harness

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]


@pytest.mark.timeout(600)
def test_each_kind_of_process_stops_when_told_to(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    # One processor: a second one would do some of its own work again at a rebalance.
    alone = {"processor": {"replicas": 1}}
    with Harness(settings, tmp_path, spec=alone, seed=4) as harness:
        harness.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            for role in ("worker", "processor", "learner"):
                pid = harness.terminate(role, 0, number)
                harness.wait_for_end(pid)
                harness.wait_for_progress(
                    acked=500, trained=500, updates=10, timeout_s=120.0
                )
        harness.wait_for_load()
        evidence = harness.finish()
    record_fault("F04", evidence)
    assert_clean(evidence)
    told = [end for end in evidence.ended if end.asked]
    assert len(told) == 6 + 6
    assert {(end.role, end.code) for end in told} == {
        (role, 0) for role in ("worker", "processor", "learner")
    }
    assert max(end.took_s for end in told) <= 10.0
    # The learner's last checkpoint held all that it had taken in.
    assert follow_training(evidence.lives).undone == 0
    # What a processor had handled was committed, and is not handled again.
    assert [when(evidence, logged.at_s) for logged, _ in evidence.repetitions] == []


def when(evidence: Evidence, at_s: float) -> str:
    """Say after which fault something happened."""
    before = [fault for fault in evidence.injected if fault.at_s <= at_s]
    return (
        f"{at_s - before[-1].at_s:.1f} s after {before[-1].what} {before[-1].role}"
        if before
        else "before"
    )
