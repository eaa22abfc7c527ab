"""The work of a step, and a rate -> cores, memory and bytes by role; pure.

Everything is linear in the rate but what is bounded: credits and versions, of which no
more than so many a second are told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from infra.planning.constants import Constants
from infra.planning.workload import Workload

CREDITS_PER_S = 20.0
"""At most, from `learner/credits.py`: one in 50 ms."""
HEADROOM = 0.7
"""The share of a process or host that is planned with: what is full has queues."""
_MB = 1e6
_MIB = 2**20


@dataclass(frozen=True)
class Demand:
    """What a rate needs; cores are CPU seconds a second.

    Attributes:
        rate: env steps/s of all workers.
        num_envs: environments.
        workers: worker processes.
        worker_cores: of all workers.
        worker_busy: cores of one worker; above 1 it cannot keep up.
        processor_cores: of all processors.
        processors: processes that are needed, each no busier than HEADROOM.
        kafka_cores: of all brokers.
        learner_cores: of the learner: intake and learning.
        intake_cores: of that, what it takes to take experience in.
        evaluator_cores: of the evaluator, where versions come as fast as this.
        watch_cores: of whoever follows the metrics: the run, or the leader.
        updates_per_s: of the learner.
        versions_per_s: of policies.
        credits_per_s: records.
        trajectory_bytes_per_s: written to trajectories.
        replay_bytes_per_s: written to replay.
        control_bytes_per_s: credits and policies, read by all workers.
        retention_s: how long trajectories are kept.
        memory_bytes: of all processes.
    """

    rate: float
    num_envs: int
    workers: int
    worker_cores: float
    worker_busy: float
    processor_cores: float
    processors: int
    kafka_cores: float
    learner_cores: float
    intake_cores: float
    evaluator_cores: float
    watch_cores: float
    updates_per_s: float
    versions_per_s: float
    credits_per_s: float
    trajectory_bytes_per_s: float
    replay_bytes_per_s: float
    control_bytes_per_s: float
    retention_s: float
    memory_bytes: float

    @property
    def cores(self) -> float:
        """CPU of all roles."""
        return (
            self.worker_cores
            + self.processor_cores
            + self.kafka_cores
            + self.learner_cores
            + self.evaluator_cores
            + self.watch_cores
        )

    @property
    def broker_bytes_in_per_s(self) -> float:
        """Bytes that are written to brokers, before replication."""
        return self.trajectory_bytes_per_s + self.replay_bytes_per_s

    @property
    def broker_bytes_out_per_s(self) -> float:
        """Bytes that are read from brokers."""
        return self.broker_bytes_in_per_s + self.control_bytes_per_s


def grown(work: Workload, num_envs: int) -> Workload:
    """Return the work with another number of environments, in workers as large."""
    size = work.envs_per_worker
    workers = -(-num_envs // size)
    return replace(work, workers=workers, envs_per_worker=min(size, num_envs))


def demand(work: Workload, rate: float, costs: Constants) -> Demand:
    """Return what a rate needs.

    Args:
        work: of a step, and how many workers do it.
        rate: env steps/s, of all workers.
        costs: what things cost.
    """
    updates = rate * work.samples_per_step / work.batch_size
    versions = _versions_per_s(work, updates)
    credits = _credits_per_s(work, rate)
    workers = _worker_cores(work, rate, credits, costs)
    intake = _intake_cores(work, rate, credits, costs)
    processing = processor_us_per_step(work, costs) * rate / _MB
    processors = _processors(work, processing, costs)
    control = _control_bytes_per_s(work, credits, versions, costs)
    return Demand(
        rate=rate,
        num_envs=work.num_envs,
        workers=work.workers,
        worker_cores=workers,
        worker_busy=workers / max(work.workers, 1),
        processor_cores=processing + processors * costs.processor_idle_cores,
        processors=processors,
        kafka_cores=_kafka_cores(work, rate, control, costs),
        learner_cores=intake + learning_us_per_step(work, costs) * rate / _MB,
        intake_cores=intake,
        evaluator_cores=_evaluator_cores(work, versions, costs),
        watch_cores=(work.workers + processors + 2) * costs.metrics_point_us / _MB,
        updates_per_s=updates,
        versions_per_s=versions,
        credits_per_s=credits,
        trajectory_bytes_per_s=rate * work.trajectory_bytes,
        replay_bytes_per_s=rate * work.replay_bytes,
        control_bytes_per_s=control,
        retention_s=_retention_s(work, rate),
        memory_bytes=_memory_bytes(work, processors, costs),
    )


def worker_us_per_step(work: Workload, costs: Constants) -> float:
    """Return a worker's CPU microseconds a step, environment and policy included."""
    return (
        costs.worker_step_us
        + work.env_us
        + work.acting_flops / 1e6 * costs.acting_mflop_us
        + costs.worker_vector_step_us / work.envs_per_worker
        + costs.worker_record_us / work.steps_per_record
    )


def learning_us_per_step(work: Workload, costs: Constants) -> float:
    """Return what learning takes of the learner for each step that comes in."""
    row = costs.learn_row_us + work.training_flops / 1e6 * costs.training_mflop_us
    if work.draws:
        row += costs.draw_row_us + work.drawn_bytes * costs.copy_byte_us
    row += work.gradient_steps * costs.gradient_step_us / work.batch_size
    return work.samples_per_step * row


def fastest_rate(work: Workload, costs: Constants) -> float:
    """Return the rate of workers that have a core each, and never wait."""
    credits = CREDITS_PER_S if work.is_credited else 0.0
    fixed = _worker_cores(work, 0.0, credits, costs) / max(work.workers, 1)
    each = max(1 - fixed, 0.0) / worker_us_per_step(work, costs) * _MB
    return work.workers * min(each, work.most_steps_per_s)


def carried_rate(work: Workload, cores: float, costs: Constants) -> float:
    """Return the most steps/s that so many cores carry, all roles on them.

    No worker and no learner is busier than one core.
    """
    low, high = 0.0, fastest_rate(work, costs)
    for _ in range(60):
        rate = (low + high) / 2
        needed = demand(work, rate, costs)
        fits = needed.cores <= cores and needed.learner_cores <= 1
        low, high = (rate, high) if fits else (low, rate)
    return low


def _worker_cores(
    work: Workload, rate: float, credits: float, costs: Constants
) -> float:
    """Return the cores of all workers; each decodes the credit of all."""
    told = credits * work.workers * costs.credit_decode_us / _MB
    each = costs.worker_idle_cores + told
    return work.workers * each + rate * worker_us_per_step(work, costs) / _MB


def processor_us_per_step(work: Workload, costs: Constants) -> float:
    """Return a processor's CPU microseconds a step."""
    return (
        costs.processor_step_us
        + costs.processor_byte_us * work.trajectory_bytes
        + costs.processor_record_us / work.steps_per_record
    )


def _processors(work: Workload, busy: float, costs: Constants) -> int:
    room = HEADROOM - costs.processor_idle_cores
    return max(1, math.ceil(busy / room))


def _kafka_cores(
    work: Workload, rate: float, control_bytes_per_s: float, costs: Constants
) -> float:
    """Return the cores of all brokers; what is read once costs a quarter of a byte.

    (A byte of trajectories is written and read, and so is that of replay.)
    """
    step = costs.kafka_byte_us * work.trajectory_bytes
    step += costs.kafka_record_us / work.steps_per_record
    return (
        costs.kafka_idle_cores
        + work.workers * costs.kafka_worker_cores
        + work.partitions * costs.kafka_partition_cores
        + rate * step / _MB
        + control_bytes_per_s * costs.kafka_byte_us / 4 / _MB
    )


def _intake_cores(
    work: Workload, rate: float, credits: float, costs: Constants
) -> float:
    step = (
        costs.intake_step_us
        + costs.insert_row_us
        + costs.intake_byte_us * work.trajectory_bytes
        + costs.open_byte_us * work.opened_bytes
        + costs.intake_record_us / work.steps_per_record
    )
    each = costs.intake_worker_cores + credits * costs.credit_encode_us / _MB
    return costs.intake_idle_cores + work.workers * each + rate * step / _MB


def _evaluator_cores(work: Workload, versions_per_s: float, costs: Constants) -> float:
    """Return what evaluating takes: no more than a core, for versions are skipped."""
    step_us = (
        work.env_us
        + work.acting_flops / 1e6 * costs.acting_mflop_us
        + costs.worker_vector_step_us / work.evaluator_envs
    )
    busy = versions_per_s / work.every_versions * work.evaluation_steps * step_us / _MB
    return work.evaluators * min(1.0, busy)


def _versions_per_s(work: Workload, updates_per_s: float) -> float:
    by_updates = updates_per_s / work.updates_per_policy
    if not work.policy_interval_s:
        return by_updates
    return min(by_updates, 1 / work.policy_interval_s)


def _credits_per_s(work: Workload, rate: float) -> float:
    if not work.is_credited or not work.workers:
        return 0.0
    return min(CREDITS_PER_S, max(1.0, rate / work.steps_per_record))


def _control_bytes_per_s(
    work: Workload, credits: float, versions: float, costs: Constants
) -> float:
    """Return what workers read: each the credit of all, and versions, a host once."""
    credit_bytes = work.workers**2 * costs.credit_entry_bytes
    readers = -(-work.workers // work.policy_sharers)
    return credits * credit_bytes + versions * readers * work.policy_bytes


def used_partitions(work: Workload) -> int:
    """Return how many partitions have a worker."""
    return max(1, min(work.workers, work.partitions))


def _retention_s(work: Workload, rate: float) -> float:
    """Return how long trajectories stay, where the partitions' shares fill evenly."""
    share = work.disk_budget / 2 * used_partitions(work) / work.partitions
    return share / (rate * work.trajectory_bytes) if rate else math.inf


def _memory_bytes(work: Workload, processors: int, costs: Constants) -> float:
    record = work.steps_per_record * work.trajectory_bytes
    worker = costs.worker_mb * _MIB
    worker += (costs.worker_record_share + costs.processor_record_share) * record
    fixed = (
        costs.learner_mb
        + processors * costs.processor_mb
        + work.evaluators * costs.evaluator_mb
        + costs.kafka_mb
        + costs.zookeeper_mb
    )
    return work.workers * worker + fixed * _MIB + work.buffer_bytes
