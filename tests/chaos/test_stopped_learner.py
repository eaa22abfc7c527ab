"""F29: the learner stands still while workers that nobody holds back go on."""

from __future__ import annotations

import time
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

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]

STOPPED_S = 45.0
GROWTH_BYTES = 200 << 20
PATIENCE = 4.0
"""Within 5 s on a machine of one's own; tests share theirs."""

SPEC = {
    "workers": {
        "replicas": 2,
        "envsPerWorker": 8,
        "unrollLength": 32,
        "maxEnvStepsPerS": 0,
    },
    "flow": {"mode": "free"},
}


@pytest.mark.timeout(900)
def test_memory_stays_bounded_and_the_lag_is_right(
    settings: Settings, tmp_path: Path
) -> None:
    # Millions of steps: too many for the checker's slow oracle, so none is asked.
    with Harness(settings, tmp_path, spec=SPEC, seed=29) as harness:
        harness.start()
        harness.freeze("learner")
        frozen_s = time.monotonic()
        handled = trained_records(harness)
        rss: dict[str, list[int]] = {}
        acked_before = harness.acked
        told_after_s = 0.0
        while time.monotonic() - frozen_s < STOPPED_S:
            for who, pid in harness.supervisor.pids().items():
                if who.role in ("worker", "processor"):
                    size = psutil.Process(pid).memory_info().rss
                    rss.setdefault(who.key, []).append(size)
            if not told_after_s:
                check_lag(harness, handled)
                told_after_s = time.monotonic() - frozen_s
            time.sleep(1.0)
        check_lag(harness, handled)
        rate = (harness.acked - acked_before) / STOPPED_S
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
        f"{rate:,.0f} steps/s while the learner stood still; RSS grew by {most:.0f} "
        f"MiB at most; the lag was right {told_after_s:.1f} s after the stop"
    )
    assert rate > 1_000
    assert max(growth.values()) < GROWTH_BYTES
    assert told_after_s < 5.0 * PATIENCE
    assert not [who for who, text in logs.items() if "BufferError" in text]


def trained_records(harness: Harness) -> dict[int, int]:
    """By partition: the next offset after the last batch that the learner inserted."""
    found: dict[int, int] = {}
    for life in harness.journals.lives("learner"):
        for line in life.of("insert"):
            found[line["partition"]] = line["offset"] + 1
    return found


def check_lag(harness: Harness, handled: dict[int, int]) -> None:
    """Compare the lag that is told with the log's ends and the learner's journal."""
    topic = topic_name(REPLAY, harness.name)
    consumer = make_consumer(harness.settings, group=None, client_id="lag")
    with closing(consumer):
        before = sum(end_offsets(consumer, topic).values())
        (told,) = [
            group.lag
            for group in read_status(harness.settings, harness.name).groups
            if group.role == "learner"
        ]
        after = sum(end_offsets(consumer, topic).values())
    assert told is not None
    # Its last report may be a second old, and it is not journalled what it left out.
    second = 0.1 * after + 10
    done = sum(handled.values())
    assert before - done - second <= told <= after - done + second, (
        before,
        told,
        after,
    )
