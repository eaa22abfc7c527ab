"""Each role is killed once under load: the short form of the fault tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.settings import Settings
from tests.chaos.checks import assert_clean
from tests.chaos.harness import SHARED_S, Harness

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]


@pytest.mark.timeout(900)
def test_every_role_is_killed_once(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with Harness(settings, tmp_path) as harness:
        harness.start()
        for role, index in (("worker", 1), ("processor", 0), ("learner", 0)):
            harness.kill(role, index)
            harness.wait_for_progress(acked=500, trained=500, updates=10)
        evidence = harness.finish(SHARED_S, SHARED_S)
    record_fault("short", evidence)
    assert_clean(evidence)
