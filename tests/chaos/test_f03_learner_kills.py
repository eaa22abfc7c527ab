"""F03: the learner dies between an optimizer step and its committed offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.settings import Settings
from tests.chaos.checks import assert_clean
from tests.chaos.evidence import follow_training
from tests.chaos.harness import Harness
from tests.chaos.learner_hooks import POINTS

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]


@pytest.mark.timeout(900)
def test_the_learner_dies_at_every_point_twice(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    """C2 compares each restored counter with the journal, and offsets with rows."""
    with Harness(settings, tmp_path, seed=3) as harness:
        harness.start()
        for point in POINTS * 2:
            pid = harness.pid("learner")
            harness.order("learner", 0, point)
            harness.wait_for_end(pid, 120.0)
            harness.injected(f"at {point}", "learner", 0, pid)
            harness.wait_for_progress(updates=20, trained=200, timeout_s=120.0)
        harness.wait_for_load()
        evidence = harness.finish()
    record_fault("F03", evidence, what="kill learner at each step of a checkpoint")
    assert_clean(evidence)
    restored = [line for line in evidence.of("learner", "restored")]
    assert len(restored) == 11
    assert all(line["checkpoint"] for line in restored[2:])
    assert follow_training(evidence.lives).undone > 0  # the kills did cost something
    final = int(evidence.summary["env_steps"])
    assert final == follow_training(evidence.lives).steps
