"""Workers come while the learner starves, and go when it cannot follow: for real."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from infra.monitoring.follow import MetricsFollower
from infra.settings import Settings
from tests.integration.agent_rig import Fleet, small, until
from tests.integration.scaling_plot import Moment, write_plot

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

WAIT_RATIO, LAG = 0.2, 15
ELASTIC = (
    "spec.flow.mode=free",
    "spec.workers.min=1",
    "spec.workers.max=3",
    f"spec.workers.scaling.learnerWaitRatio={WAIT_RATIO}",
    f"spec.workers.scaling.maxReplayLag={LAG}",
    "spec.workers.scaling.maxPolicyLag=1e9",
    "spec.workers.scaling.windowS=5",
    "spec.workers.scaling.coolDownS=7",
    "spec.workers.maxEnvStepsPerS=160",  # 10 records a second
    "spec.workers.resources.cpu=0.1",
)


class Observer:
    """Notes each second how many workers are planned, and how it goes."""

    def __init__(self, fleet: Fleet, name: str, follower: MetricsFollower) -> None:
        self._fleet, self._name, self._follower = fleet, name, follower
        self._began_s = time.monotonic()
        self._reported = (0, 0.0)
        self.moments: list[Moment] = []
        self.marks: list[tuple[float, str]] = []

    def mark(self, text: str) -> None:
        self.marks.append((time.monotonic() - self._began_s, text))

    def workers(self) -> int:
        self._follower.poll(0.2)
        placed = self._fleet.placed(self._name)
        count = sum(key.startswith("worker/") for key in placed)
        at_s = time.monotonic() - self._began_s
        report = self._follower.progress.points.get(("learner", 0))
        if report is None:
            return count
        lag = self._follower.lag["learner"]
        if report.produced_at_ms == self._reported[0]:
            if self.moments and self.moments[-1].workers != count:
                self.moments.append(Moment(at_s, count, None, lag))
            return count
        waited_s = report.values["waited_data_s"]
        ratio = None
        if self._reported[0]:
            seconds = (report.produced_at_ms - self._reported[0]) / 1000
            ratio = (waited_s - self._reported[1]) / seconds
        self._reported = report.produced_at_ms, waited_s
        self.moments.append(Moment(at_s, count, ratio, lag))
        return count


def test_workers_follow_the_learner(
    fleet: Fleet,
    settings: Settings,
    tmp_path: Path,
    slowness: Path,
) -> None:
    fleet.start("--capacity", "cpu=4")
    name = fleet.named("elastic")
    published = fleet.launch(small(name, *ELASTIC))
    with closing(MetricsFollower(settings, name, published.run_id)) as follower:
        seen = Observer(fleet, name, follower)
        until(lambda: seen.workers() == 3, "it grows: one worker starves the learner")
        until(lambda: seen.workers() and fleet.runs_as_planned(name, 5), "they run")
        first = len(fleet.events(name, "scaled"))
        # 32 rows each 0.3 s: 7 records a second, and one worker makes 10.
        slowness.write_text("0.3")
        seen.mark("the learner becomes slow")
        until(lambda: seen.workers() == 1, "it shrinks: the learner cannot follow")
        slowness.unlink()
        seen.mark("fast again")
        until(lambda: seen.workers() == 3, "it grows again", 180.0)
        steady_s = time.monotonic()
        until(lambda: seen.workers() != 3 or time.monotonic() - steady_s > 15, "steady")
        assert seen.workers() == 3, "it stays there"
    path = Path(os.environ.get("ROLLSTREAM_CHAOS_REPORT", tmp_path)) / "scaling.png"
    write_plot(seen.moments, seen.marks, (WAIT_RATIO, LAG), path)
    print(f"{path}: {path.stat().st_size} bytes")
    events = fleet.events(name, "scaled")
    for event in events:
        print(event.reason)
    assert "the learner waits" in events[0].reason
    assert "records or more wait for the learner" in events[first].reason
    assert all(event.role == "worker" for event in events)
    # From 1 to 3, back to 1, and to 3 again, each once.
    assert len(events) <= 7
    times = [event.produced_at_ms for event in events]
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert min(gaps) >= 7_000, "no two within a cool-down"


def test_what_fits_nowhere_is_told_of_once_and_done_when_there_is_room(
    fleet: Fleet,
) -> None:
    fleet.start("--capacity", "cpu=0.7")  # for two workers beside the others
    name = fleet.named("cramped")
    fleet.launch(small(name, *ELASTIC))

    def refused() -> list[str]:
        reasons = [event.reason for event in fleet.events(name, "scaled")]
        return [reason for reason in reasons if reason.startswith("not from")]

    (reason,) = until(refused, "a third has no place", 180.0)
    assert reason.startswith("not from 2 to 3: the learner waits")
    assert reason.endswith("lacks cpu 0.1 (free 0)")
    until(lambda: fleet.is_in(name, "running"), "what there is is enough")
    quiet_s = time.monotonic()
    while time.monotonic() - quiet_s < 15.0:
        assert fleet.is_in(name, "running") and len(fleet.placed(name)) == 4
        time.sleep(0.5)
    fleet.start("--capacity", "cpu=0.1")
    # Else it would not be asked for before ten cool-downs, 70 s, have passed.
    until(lambda: len(fleet.placed(name)) == 5, "there is room", 45.0)
    until(lambda: fleet.runs_as_planned(name, 5), "it runs")
    assert len(refused()) == 1
