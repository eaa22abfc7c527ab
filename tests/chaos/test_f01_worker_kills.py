"""F01: env workers die by SIGKILL in the middle of episodes, again and again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from infra.settings import Settings
from tests.chaos.checks import assert_clean
from tests.chaos.evidence import Evidence
from tests.chaos.harness import Harness
from tests.chaos.pacing import at_random_times
from tests.chaos.recovery import recoveries_s

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]


@pytest.mark.timeout(600)
def test_workers_killed_10_times_in_60_s(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with Harness(settings, tmp_path, seed=1) as harness:
        harness.start()
        for _ in at_random_times(harness, times=10, within_s=60.0):
            harness.kill("worker", harness.random.randrange(4))
        harness.wait_for_progress(acked=2_000)
        # One that stays down must not look alive.
        harness.hold("worker", 3)
        harness.wait_until(
            lambda: "worker-3" not in harness.coordination.live_roles(harness.name),
            60.0,
            "the registry forgets a dead worker",
        )
        harness.start_again("worker", 3)
        harness.wait_for_progress(acked=4_000)
        evidence = harness.finish()
    record_fault("F01", evidence)
    assert_clean(evidence)
    assert_rows_stay_within_their_incarnation(evidence)
    seeds = Counter(line["seed"] for line in evidence.of("worker", "reset"))
    assert len(seeds) >= 15 and set(seeds.values()) == {1}
    assert max(s for f, s in recoveries_s(evidence)) < 15.0


def assert_rows_stay_within_their_incarnation(evidence: Evidence) -> None:
    """No row bootstraps from a step that its own incarnation has not taken."""
    taken: dict[tuple[str, int], int] = {}
    for _, unroll in evidence.unrolls:
        who = unroll.worker, unroll.incarnation
        taken[who] = max(taken.get(who, 0), unroll.first_step + unroll.num_steps)
    for logged, batch in evidence.batches:
        steps = np.arange(batch.num_steps)[:, None]
        reach = batch.bootstrap_steps.array() + steps
        last = batch.first_step + int(reach.max())
        assert last <= taken[batch.worker, batch.incarnation], logged.address
