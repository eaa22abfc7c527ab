"""F29: the learner stands still while workers that nobody holds back go on."""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from infra.kafka.clients import make_consumer
from infra.kafka.reading import end_offsets
from infra.monitoring.status import read_status
from infra.settings import Settings
from schemas.topics import REPLAY, topic_name
from tests.chaos.harness import Harness
from tests.chaos.recovery import BACK_WITHIN_S

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]

# Now: tests run without the variables that a developer has set.
STOPPED_S = float(os.environ.get("ROLLSTREAM_CHAOS_STOPPED_S", "45"))
"""ROLLSTREAM_CHAOS_STOPPED_S=300 for the five minutes of the long variant."""
GROWTH_BYTES = 200 << 20
TOLD_WITHIN_S = 5.0
PATIENCE = 2.0
"""For a machine that is shared."""
STALE_S = 3.0
"""What is told may be so old: a report each second, and ends asked for each second."""

SPEC = {
    "workers": {
        "replicas": 2,
        "envsPerWorker": 8,
        "unrollLength": 32,
        "maxEnvStepsPerS": 0,
    },
    "flow": {"mode": "free"},
}


@pytest.mark.timeout(900 + STOPPED_S)
def test_memory_stays_bounded_and_the_lag_is_right(
    settings: Settings, tmp_path: Path
) -> None:
    # Millions of steps: too many for the checker's slow oracle, so none is asked.
    with Harness(settings, tmp_path, spec=SPEC, seed=29) as harness:
        harness.start()
        with closing(Truth(harness)) as truth:
            harness.freeze("learner")
            frozen_s = time.monotonic()
            truth.learner_is_frozen()
            harness.wait_until(
                lambda: not truth.differs(harness.lag()["learner"]),
                60.0,
                "the lag is right",
            )
            told_after_s = time.monotonic() - frozen_s
            rss: dict[str, list[int]] = {}
            acked_before, from_s = harness.acked, time.monotonic()
            while time.monotonic() - frozen_s < STOPPED_S:
                look_at_memory(harness, rss)
                time.sleep(1.0)
            rate = (harness.acked - acked_before) / (time.monotonic() - from_s)
            asked_s = time.monotonic()
            assert not truth.differs(status_lag(harness))
            status_s = time.monotonic() - asked_s
        back_s = harness.rate.back_s()
        harness.thaw("learner")
        harness.wait_for_progress(trained=5_000, updates=10)
        assert harness.supervisor.ended == []
        progress = harness.watch.follower.progress
        assert progress.learner("lost_steps") == 0
        assert progress.learner("duplicate_steps") == 0
        logs = harness.logs()
    growth = {who: max(sizes) - sizes[0] for who, sizes in rss.items()}
    most = max(growth.values()) / 2**20
    print(
        f"{rate:,.0f} steps/s for {STOPPED_S:.0f} s while the learner stood still, "
        f"90 % of the rate before after {back_s} s; RSS grew by {most:.0f} MiB at "
        f"most; the lag was right {told_after_s:.1f} s after the stop, status took "
        f"{status_s:.1f} s; load {os.getloadavg()[0]:.0f}"
    )
    assert rate > 1_000
    assert back_s is not None and back_s <= BACK_WITHIN_S, "nobody waits for a learner"
    assert max(growth.values()) < GROWTH_BYTES
    assert told_after_s < TOLD_WITHIN_S * PATIENCE
    assert not [who for who, text in logs.items() if "BufferError" in text]


def look_at_memory(harness: Harness, rss: dict[str, list[int]]) -> None:
    for who, pid in harness.supervisor.pids().items():
        if who.role in ("worker", "processor"):
            rss.setdefault(who.key, []).append(psutil.Process(pid).memory_info().rss)


def status_lag(harness: Harness) -> int | None:
    """The learner's lag as `rollstream status` tells it."""
    groups = read_status(harness.settings, harness.name).groups
    (told,) = [group.lag for group in groups if group.role == "learner"]
    return told


class Truth:
    """The learner's lag by the log's ends and the learner's own journal."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._topic = topic_name(REPLAY, harness.name)
        self._consumer = make_consumer(harness.settings, group=None, client_id="truth")
        self._ends: deque[tuple[float, int]] = deque()
        self._done = 0

    def learner_is_frozen(self) -> None:
        """Take in what it has inserted: by partition, up to its last batch."""
        lives = self._harness.journals.lives("learner")
        lines = [line for life in lives for line in life.of("insert")]
        done = {line["partition"]: line["offset"] + 1 for line in lines}
        self._done = sum(done.values())
        # What it had inserted since its last report.
        since_s = lines[-1]["at_s"] - STALE_S
        self._unreported = sum(line["at_s"] > since_s for line in lines)

    def differs(self, told: int | None) -> str:
        """Return how a lag is wrong that was told now, "" where it is right."""
        now_s = time.monotonic()
        self._ends.append((now_s, self._end()))
        while len(self._ends) > 1 and self._ends[1][0] < now_s - STALE_S:
            self._ends.popleft()
        least = self._ends[0][1] - self._done
        most = self._end() - self._done + self._unreported
        is_right = told is not None and least <= told <= most
        return "" if is_right else f"told {told}, expected {least} to {most}"

    def _end(self) -> int:
        return sum(end_offsets(self._consumer, self._topic).values())

    def close(self) -> None:
        self._consumer.close()
