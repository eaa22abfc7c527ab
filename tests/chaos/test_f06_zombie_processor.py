"""F06: a processor is frozen past its session, replaced, and comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra.settings import Settings
from tests.chaos.checks import assert_clean
from tests.chaos.harness import Harness

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]
SESSION_S = 6.0


@pytest.mark.timeout(600)
def test_a_processor_that_comes_back_from_the_dead_changes_nothing(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with Harness(settings, tmp_path, seed=7) as harness:
        harness.start()
        for index in (0, 1, 0):
            frozen = harness.freeze("processor", index)
            with pytest.raises(AssertionError):
                harness.wait_until(lambda: False, 2 * SESSION_S, "the freeze")
            # The other one has taken over all partitions and goes on.
            harness.wait_for_progress(acked=500, trained=500, timeout_s=60.0)
            harness.thaw("processor", index)
            harness.wait_for_progress(acked=500, trained=500, timeout_s=90.0)
            print(
                "the zombie",
                frozen,
                "runs" if frozen in harness.pids().values() else "left",
            )
        harness.wait_for_load()
        evidence = harness.finish()
    for end in [e for e in evidence.ended if e.role == "processor" and not e.asked]:
        # It may leave, but says why.
        assert end.code not in (0, 1), end
        assert evidence.logs[f"processor/{end.index}"].strip(), end
        evidence.ended[evidence.ended.index(end)] = replace(end, harmed=True)
    record_fault("F06", evidence)
    assert_clean(evidence)
