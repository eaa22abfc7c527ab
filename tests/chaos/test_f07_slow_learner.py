"""F07: optimizer steps that take longer than a consumer may go unpolled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from infra.settings import Settings
from tests.chaos.checks import assert_clean
from tests.chaos.harness import Harness
from tests.chaos.journal import MAX_POLL_INTERVAL_MS

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]
INTERVAL_S = 6.0  # the least that a session of 6 s allows


@pytest.mark.timeout(600)
def test_a_learner_that_is_slow_for_long_does_not_read_for_ever(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    variables = {MAX_POLL_INTERVAL_MS: str(int(INTERVAL_S * 1000))}
    with Harness(settings, tmp_path, variables=variables, seed=8) as harness:
        harness.start()
        for number in range(3):
            harness.injected("slow", "learner", 0, harness.pid("learner"))
            harness.order("learner", 0, "update", str(2 * INTERVAL_S))
            harness.wait_until(
                lambda n=number: len(orders(harness)) > n, 90.0, "the learner sleeps"
            )
            harness.wait_for_progress(trained=500, updates=20, timeout_s=120.0)
        harness.wait_for_load()
        evidence = harness.finish()
    record_fault("F07", evidence, what="a learner's step takes 12 s")
    assert_clean(evidence)
    came = Counter(
        (line["partition"], line["offset"]) for line in evidence.of("learner", "insert")
    )
    assert max(came.values()) <= 2
    assert [end.role for end in evidence.ended if not end.asked] == []


def orders(harness: Harness) -> list[dict]:
    """What was done of what the test has ordered."""
    return [
        line for life in harness.journals.lives("learner") for line in life.of("order")
    ]
