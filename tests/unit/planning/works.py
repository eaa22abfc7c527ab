"""Workloads and costs with round numbers, for sums on paper."""

from dataclasses import replace

from infra.planning.constants import Constants
from infra.planning.limits import Host
from infra.planning.workload import Workload

WORK = Workload(
    workers=4,
    envs_per_worker=100,
    unroll=10,
    env_us=2.0,
    acting_flops=1e6,
    trajectory_bytes=50.0,
    replay_bytes=66.0,
    opened_bytes=0.0,
    drawn_bytes=100.0,
    policy_bytes=1_000_000,
    policy_sharers=1,
    training_flops=5e6,
    samples_per_step=0.5,
    batch_size=100,
    gradient_steps=1.0,
    draws=True,
    buffer_bytes=10_000_000,
    buffer_rows=1_000,
    updates_per_policy=10,
    policy_interval_s=0.2,
    most_steps_per_s=float("inf"),
    partitions=8,
    disk_budget=16_000_000,
    processors=1,
    is_credited=True,
    evaluators=1,
    evaluator_envs=100,
    evaluation_steps=10_000,
    every_versions=1,
)

COSTS = Constants(
    worker_step_us=1.0,
    worker_vector_step_us=100.0,
    worker_record_us=1_000.0,
    worker_idle_cores=0.01,
    acting_mflop_us=3.0,
    processor_step_us=0.5,
    processor_byte_us=0.01,
    processor_record_us=1_000.0,
    processor_idle_cores=0.02,
    kafka_byte_us=0.01,
    kafka_record_us=500.0,
    kafka_idle_cores=0.05,
    kafka_worker_cores=0.01,
    kafka_partition_cores=0.001,
    intake_step_us=0.2,
    intake_byte_us=0.01,
    intake_record_us=1_000.0,
    intake_idle_cores=0.03,
    intake_worker_cores=0.001,
    insert_row_us=0.3,
    draw_row_us=1.0,
    copy_byte_us=0.01,
    open_byte_us=0.001,
    learn_row_us=1.0,
    gradient_step_us=500.0,
    training_mflop_us=2.0,
    credit_entry_bytes=10.0,
    credit_encode_us=50.0,
    credit_decode_us=100.0,
    metrics_point_us=100.0,
    worker_mb=30.0,
    worker_record_share=4.0,
    processor_mb=100.0,
    processor_record_share=10.0,
    learner_mb=400.0,
    evaluator_mb=60.0,
    kafka_mb=700.0,
    zookeeper_mb=100.0,
)

HOST = Host(cores=16, network_bytes_per_s=1e9)


def work(**changes):
    return replace(WORK, **changes)
