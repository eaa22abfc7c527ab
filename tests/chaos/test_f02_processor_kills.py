"""F02: processors die by SIGKILL at random, one of two at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.settings import Settings
from tests.chaos.checks import assert_clean
from tests.chaos.harness import Harness
from tests.chaos.pacing import at_random_times
from tests.chaos.recovery import recoveries_s

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]


@pytest.mark.timeout(600)
def test_processors_killed_10_times(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with Harness(settings, tmp_path, seed=2) as harness:
        harness.start()
        for _ in at_random_times(harness, times=10, within_s=120.0):
            harness.kill("processor", harness.random.randrange(2))
        harness.wait_for_progress(acked=6_000, trained=6_000, timeout_s=120.0)
        evidence = harness.finish()
    record_fault("F02", evidence)
    assert_clean(evidence)
    # The last alone: before it the next kill may have come in between.
    assert recoveries_s(evidence)[-1][1] < 40.0
