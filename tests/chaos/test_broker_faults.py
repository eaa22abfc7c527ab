"""Brokers are restarted, killed and frozen under load; nobody else is touched."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from infra.cluster.local import LocalCluster
from infra.kafka.clients import make_admin
from infra.kafka.open_transactions import held_back
from infra.settings import Settings
from tests.chaos.brokers import (
    Brokers,
    Memory,
    OneBroker,
    OneOfThree,
    note_back,
    wait_for_work,
)
from tests.chaos.checks import assert_clean, check_all
from tests.chaos.evidence import Evidence
from tests.chaos.harness import SHARED_S, Harness
from tests.chaos.recovery import recoveries_s
from tests.chaos.three_brokers import three_brokers

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

TIMES = 5
FREEZE_S = 20.0
BACK_WITHIN_S = 15.0
# From the kill on: the others have to notice, and to elect. 15 s, times 2 for a machine
# that has other work: up to 21 s were seen with ten times what its cores can do.
THREE_BACK_WITHIN_S = 2 * 15.0
# Frozen, the broker ends its groups' sessions when it goes on: 6 s, and a rebalance
# that waits at most 20 s for who was not told yet.
REJOINED_WITHIN_S = 40.0
MAX_GROWTH_BYTES = 200 * 2**20
# After a kill, nobody else leads before.
NOTICED_S = 3.0
# Of Kafka itself, after a clean stop or a crash.
RESTART_S = 60.0


@pytest.fixture(params=["one", "three"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Brokers]:
    if request.param == "one":
        settings = request.getfixturevalue("settings")
        yield OneBroker(request.getfixturevalue("local_cluster"), settings)
        return
    own = Settings(data_dir=tmp_path / "three", bootstrap_servers=None, zookeeper=None)
    with three_brokers(own) as found:
        yield OneOfThree(found)


def id_of(fault: str, brokers: Brokers) -> str:
    return fault if isinstance(brokers, OneBroker) else f"{fault} (three)"


def check(
    evidence: Evidence,
    record_fault,
    fault: str,
    memory: Memory,
    processors_within_s: float = BACK_WITHIN_S,
    within_s: float = BACK_WITHIN_S,
) -> None:
    recoveries = recoveries_s(evidence)
    by_role = {
        role: max(s for f, s in recoveries if f.role == role)
        for role in ("broker", "processor", "learner")
    }
    growth = memory.growth_bytes / 2**20
    note = ", ".join(f"{role} {s:.1f} s" for role, s in by_role.items())
    record_fault(
        fault, evidence, injected=TIMES, note=f"{note}; +{growth:.0f} MiB a worker"
    )
    print(fault, note, f"growth {growth:.0f} MiB")
    assert_clean(evidence)
    assert memory.growth_bytes < MAX_GROWTH_BYTES
    assert len(recoveries) == 3 * TIMES, "it came back each time"
    assert by_role["processor"] <= max(within_s, processors_within_s)
    assert max(by_role["broker"], by_role["learner"]) <= within_s


@pytest.mark.heavy
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("fault", "how"), [("F08", "stop"), ("F09", "kill")])
def test_nothing_is_lost_though_brokers_go_and_come_back(
    fault: str, how: str, brokers: Brokers, tmp_path: Path, record_fault
) -> None:
    with Harness(brokers.settings, tmp_path) as harness:
        harness.start()
        memory = Memory(harness)
        for _ in range(TIMES):
            brokers.bounce(harness, how)
            memory.look()
        evidence = harness.finish()
    is_one = isinstance(brokers, OneBroker)
    within_s = BACK_WITHIN_S if is_one else THREE_BACK_WITHIN_S
    check(evidence, record_fault, id_of(fault, brokers), memory, within_s=within_s)


@pytest.mark.heavy
@pytest.mark.timeout(900)
@pytest.mark.parametrize("brokers", ["one"], indirect=True)
def test_a_frozen_broker_delays_but_neither_doubles_nor_reorders(
    brokers: Brokers, tmp_path: Path, record_fault
) -> None:
    with Harness(brokers.settings, tmp_path) as harness:
        harness.start()
        memory = Memory(harness)
        for _ in range(TIMES):
            harness.injected("note", "broker")
            with brokers.frozen():
                time.sleep(FREEZE_S)  # the fault itself
                memory.look()
            note_back(harness, "freeze")
            wait_for_work(harness)
        evidence = harness.finish()
    check(evidence, record_fault, id_of("F10", brokers), memory, REJOINED_WITHIN_S)


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_a_broker_killed_amid_other_faults_loses_nothing(
    settings: Settings, local_cluster: LocalCluster, tmp_path: Path, record_fault
) -> None:
    """During a rebalance, a checkpoint, and the last words of a worker."""
    with Harness(settings, tmp_path) as harness:
        harness.start()
        for role in ("processor", "learner", "worker"):
            if role == "learner":
                harness.order("learner", 0, "durable", "3")
                harness.wait_until(lambda: obeyed(harness), 30.0, "a checkpoint")
            elif role == "worker":
                harness.terminate("worker", 1)
            else:
                harness.kill("processor", 0)
            local_cluster.kill_broker()
            local_cluster.restart_broker()
            harness.injected("kill", "broker")
            wait_for_work(harness)
        evidence = harness.finish()
    findings = [str(finding) for finding in check_all(evidence)]
    record_fault("F09 (amid others)", evidence, findings=len(findings))
    # Told to stop while there is no broker, a worker says that it could not deliver.
    assert [text for text in findings if "exit code 4" not in text] == []


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_who_waits_for_a_killed_broker_does_not_spin(tmp_path: Path) -> None:
    """Processors and learner ask each second; the others need the cores to elect."""
    own = Settings(data_dir=tmp_path / "three", bootstrap_servers=None, zookeeper=None)
    with three_brokers(own) as brokers:
        admin = make_admin(brokers.settings)
        partitions = range(3)
        admin.create_topics([NewTopic("asked", 3, 3)])["asked"].result()
        assert held_back(admin, "asked", partitions) == {}
        brokers.kill(brokers.leader_of("asked"))
        began_s, cpu_began_s = time.monotonic(), time.process_time()
        answers = 0
        while time.monotonic() < began_s + NOTICED_S:
            with contextlib.suppress(KafkaException, TimeoutError):
                held_back(admin, "asked", partitions)
                answers += 1
        span_s = time.monotonic() - began_s
        share = (time.process_time() - cpu_began_s) / span_s
    print(f"{share:.0%} of a core for {span_s:.1f} s")
    assert answers <= 2, "it waited for the one that was gone"
    assert share < 0.2, f"{share:.0%} of a core"


def obeyed(harness: Harness) -> bool:
    return any(list(life.of("order")) for life in harness.journals.lives("learner"))


@pytest.mark.timeout(900)
def test_a_broker_that_is_killed_once_loses_nothing(
    settings: Settings, local_cluster: LocalCluster, tmp_path: Path, record_fault
) -> None:
    small = {"workers": {"replicas": 2}, "processor": {"replicas": 1}}
    with Harness(settings, tmp_path, spec=small) as harness:
        harness.start()
        harness.injected("note", "broker")
        local_cluster.kill_broker()
        local_cluster.restart_broker()
        note_back(harness, "kill")
        harness.wait_for_progress(acked=300, trained=300)
        evidence = harness.finish(SHARED_S, SHARED_S)
    record_fault("F09 (short)", evidence, injected=1)
    assert_clean(evidence)
