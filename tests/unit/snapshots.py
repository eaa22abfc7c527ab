"""Snapshots of one group and one experiment, every figure of which is known."""

from dataclasses import replace

from infra.monitoring.lag.model import (
    GroupLag,
    LagReport,
    PartitionLag,
    Place,
    Verdict,
)
from infra.monitoring.role_views import Told
from infra.monitoring.snapshot import (
    Experience,
    ExperimentView,
    ProcessView,
    Snapshot,
)

AT_S = 1_000_000.0
PARTITION = PartitionLag(
    place=Place("rollstream.e.processor", "rollstream.e.trajectories", 0),
    current=90, committed=80, begin=10, end=100, open_records=3, held=4, unsaved=10,
    lag=10, raw_lag=20, lag_env_steps=640, lag_s=2.5, lag_s_method="record",
    produced_per_s=5.0, consumed_per_s=6.0, catch_up_s=10.0, retention_used=0.9,
    owner="faust-1@/127.0.0.1", verdict=Verdict("WARN", 11, "it grows"),
)  # fmt: skip


def partition(group="rollstream.e.processor", topic="t", number=0, **changes):
    return replace(PARTITION, place=Place(group, topic, number), **changes)


def group(*partitions, **changes):
    name = partitions[0].place.group if partitions else "g"
    return replace(GroupLag(name, "Stable", 2, partitions), **changes)


def process(role="worker", index=0, heard_at_s=AT_S - 1, **values):
    return ProcessView(role, index, 1, values, {}, heard_at_s)


VIEW = ExperimentView(
    experiment="e", run_id="20261130T120000-abcdef", state="running", reason="",
    managed_by="agents", env_steps=5_000, env_steps_per_s=250.0, updates=300,
    updates_per_s=30.0, policy_version=12, episodes=40, mean_return=33.5,
    is_greedy=True, loss=0.25, dead_letters=2,
    experience=Experience(
        policy_lag_versions={"mean": 1.5, "p95": 3.0, "max": 4.0},
        policy_lag_s={"mean": 0.5, "p95": 1.0, "max": 2.0},
        data_age_s={"p50": 4.0, "p95": 9.0},
        samples_per_insert=8.0, wait_ratio=0.1, lost_steps=1, duplicate_steps=6,
        adoption_s={"w0": 0.7}, silent_s={"w0": 1.0},
    ),
    processes=(
        process("learner", env_steps=5_000.0, updates=300.0, buffer_rows=900.0),
        process("processor", batches=7.0, env_steps=5_100.0),
        *(process(
            "worker", n, heard_at_s=AT_S - 1 - 100 * n, env_steps=2_600.0,
            waited_credit_s=1.5,
        ) for n in range(2)),
    ),
    alerts=(Told("alert-on", "processor", 0, "late: 90 s behind", 5_000, "alert"),),
)  # fmt: skip

SNAPSHOT = Snapshot(
    at_s=AT_S,
    lag=LagReport(AT_S - 0.5, (group(partition()),), took_s=0.25),
    experiments=(VIEW,),
    experiments_at_s=AT_S,
)
