"""Who comes and goes: consumers of the group, the learner, a second worker."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from infra.kafka.clients import make_consumer
from infra.settings import Settings
from schemas.topics import TRAJECTORIES, group_name, topic_name
from tests.chaos.checks import assert_clean
from tests.chaos.harness import Harness
from tests.chaos.test_f05_frozen_worker import started_another

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.heavy]

STORM_S = 60.0
JOIN_EACH_S = 3.0
STALL_S = 30.0


class Storm(threading.Thread):
    """A member of the processors' group that joins, holds partitions, and leaves."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(daemon=True)
        self._harness = harness
        self._over = threading.Event()
        self.joined = 0

    def run(self) -> None:
        topic = topic_name(TRAJECTORIES, self._harness.name)
        group = group_name(self._harness.name, "processor")
        while not self._over.is_set():
            began_s = time.monotonic()
            consumer = make_consumer(
                self._harness.settings,
                group=group,
                client_id="storm",
                overrides={"partition.assignment.strategy": "roundrobin"},
            )
            with closing(consumer):
                consumer.subscribe([topic])
                while time.monotonic() - began_s < JOIN_EACH_S / 2:
                    consumer.poll(0.1)
                    if self._over.is_set():
                        break
                self.joined += bool(consumer.assignment())
            self._over.wait(max(0.0, began_s + JOIN_EACH_S - time.monotonic()))

    def finish(self) -> None:
        self._over.set()
        self.join(60.0)


@pytest.mark.timeout(900)
def test_a_storm_of_rebalances_stalls_no_partition_and_moves_no_offset_back(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with Harness(settings, tmp_path, seed=14) as harness:
        harness.start()
        harness.injected("note", "processor")
        storm = Storm(harness)
        storm.start()
        try:
            longest_s = watch_progress(harness, STORM_S)
        finally:
            storm.finish()
        evidence = harness.finish()
    note = f"{storm.joined} joins; longest stall of a partition {longest_s:.1f} s"
    record_fault("F14", evidence, what="a consumer joins and leaves", note=note)
    assert_clean(evidence)
    assert storm.joined >= 5
    assert longest_s < STALL_S


def watch_progress(harness: Harness, span_s: float) -> float:
    """Return for how long, at most, a partition with something to read stood still."""
    moved_s: dict[int, float] = {}
    before: dict[int, int] = {}
    longest_s = 0.0
    until_s = time.monotonic() + span_s
    while (now_s := time.monotonic()) < until_s:
        for (role, partition), offset in list(harness.watch.committed.items()):
            if role != "processor":
                continue
            behind = harness.watch.ends["processor"].get(partition, 0) - offset
            # The last unroll of each stream is held: it waits for the next one.
            if offset != before.get(partition) or behind <= 1:
                before[partition] = offset
                moved_s[partition] = now_s
            longest_s = max(longest_s, now_s - moved_s[partition])
        time.sleep(0.2)
    return longest_s


@pytest.mark.timeout(900)
def test_a_learner_that_is_bounced_disturbs_nobody(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with Harness(settings, tmp_path, seed=15) as harness:
        harness.start()
        others = processes(harness, "worker", "processor")
        for _ in range(5):
            number = len(harness.journals.lives("learner"))
            harness.terminate("learner")
            harness.wait_until(
                lambda n=number: len(harness.journals.lives("learner")) > n,
                90.0,
                "another learner",
            )
            harness.wait_for_progress(trained=200)
        assert processes(harness, "worker", "processor") == others
        evidence = harness.finish()
    record_fault("F15", evidence, what="SIGTERM learner x5")
    assert_clean(evidence)
    assert evidence.summary["duplicate_steps"] == 0


def processes(harness: Harness, *roles: str) -> set[tuple[str, int]]:
    pids = harness.supervisor.pids()
    return {(who.key, pid) for who, pid in pids.items() if who.role in roles}


@pytest.mark.timeout(900)
def test_of_two_workers_with_one_id_exactly_one_goes_on(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with Harness(settings, tmp_path, seed=18) as harness:
        harness.start()
        (older,) = [
            pid
            for who, pid in harness.supervisor.pids().items()
            if who.key == "worker/1"
        ]
        # Its supervisor must not answer with a third.
        held = [w for w in harness.supervisor.pids() if w.key == "worker/1"]
        harness.supervisor.held.update(held)
        harness.injected("note", "worker", 1)
        with started_another(harness, 1) as newer:
            harness.wait_until(
                lambda: any(
                    life.pid == newer.pid and life.acked > 0
                    for life in harness.journals.lives("worker-1")
                ),
                90.0,
                "the newer one works",
            )
            registered_s = time.monotonic()
            harness.wait_until(
                lambda: any(end.pid == older for end in harness.supervisor.ended),
                60.0,
                "the older one is fenced",
            )
            fenced_s = time.monotonic() - registered_s
            harness.wait_for_progress(acked=500, trained=500)
            assert newer.poll() is None
            newer.send_signal(signal.SIGTERM)
            assert newer.wait(60.0) == 0
        harness.start_again("worker", 1)
        evidence = harness.finish()
    (end,) = [each for each in evidence.ended if each.pid == older]
    assert end.code == 1 and "to be its newest, found" in evidence.logs["worker/1"]
    evidence.ended.remove(end)  # as it should
    note = f"fenced at most {fenced_s:.1f} s after the newer one's first record"
    record_fault("F18", evidence, what="a second worker of the same id", note=note)
    assert_clean(evidence)
