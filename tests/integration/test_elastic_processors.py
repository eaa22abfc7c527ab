"""Processors come while records wait for them, and go when none do: for real."""

from __future__ import annotations

from contextlib import closing

import pytest

from infra.monitoring.follow import MetricsFollower
from infra.settings import Settings
from tests.integration.agent_rig import Fleet, small, until

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

COOL_DOWN_S = 7.0
A_SECOND = 20  # records of both workers, once they are told to go slowly
# A record a step: more than one processor can take.
ELASTIC = (
    "spec.flow.mode=free",
    "spec.topics.partitions=4",
    "spec.workers.replicas=2",
    "spec.workers.envsPerWorker=1",
    "spec.workers.unrollLength=1",
    "spec.workers.maxEnvStepsPerS=0",
    "spec.workers.resources.cpu=0.1",
    "spec.processor.min=1",
    "spec.processor.max=2",
    "spec.processor.scaling.maxLag=20",
    "spec.processor.scaling.windowS=5",
    f"spec.processor.scaling.coolDownS={COOL_DOWN_S:g}",
    "spec.processor.resources.cpu=0.1",
)


def test_processors_follow_what_waits_for_them(
    fleet: Fleet, settings: Settings
) -> None:
    fleet.start("--capacity", "cpu=4")
    name = fleet.named("more-processors")
    published = fleet.launch(small(name, *ELASTIC))

    def processors() -> int:
        return sum(key.startswith("processor/") for key in fleet.placed(name))

    with closing(MetricsFollower(settings, name, published.run_id)) as follower:

        def told(value: str) -> float:
            follower.poll(0.2)
            return follower.progress.learner(value)

        def keeps_up() -> bool:
            follower.poll(0.2)
            lag = follower.lag["processor"]
            return lag is not None and lag < A_SECOND

        until(lambda: processors() == 2, "it grows: more comes than one can take", 180)
        until(lambda: fleet.runs_as_planned(name, 5), "both run")
        fleet.launch(
            small(name, *ELASTIC, f"spec.workers.maxEnvStepsPerS={A_SECOND // 2}")
        )
        until(keeps_up, "what had waited is worked off", 180)
        until(lambda: processors() == 1, "it shrinks: one has plenty of time", 180)
        taken_in = told("env_steps")
        until(lambda: told("env_steps") > taken_in + 40, "experience goes on coming")
        # Both changes handed partitions over, with records under way.
        assert told("lost_steps") == 0
    grown, shrunk = until(
        lambda: len(told := fleet.events(name, "scaled")) > 1 and told, "both are told"
    )
    assert (grown.role, shrunk.role) == ("processor", "processor")
    assert "records or more wait" in grown.reason
    assert "from 2 to 1: next to nothing has waited" in shrunk.reason
    assert shrunk.produced_at_ms - grown.produced_at_ms >= COOL_DOWN_S * 1000
