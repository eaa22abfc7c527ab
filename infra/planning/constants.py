"""What the pipeline's parts cost, as measured: the only place that has such numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """CPU, memory and sizes of the production code on one machine.

    Cores are CPU seconds a second. ``rollstream bench scaling`` prints the first four
    groups as found on your machine, ``tests/unit/planning`` has the run that these are
    of (2 shared cores of an Intel Xeon at 2.3 GHz with AVX-512, 2026-11-30).

    Attributes:
        worker_step_us: a step but for its environment and policy.
        worker_vector_step_us: a step of all B environments of a worker.
        worker_record_us: a record: encoded, sent, acknowledged.
        worker_idle_cores: each worker, whatever it does.
        acting_mflop_us: a million operations of the policy, by onnxruntime.
        processor_step_us: a step's return and priority.
        processor_byte_us: a byte of trajectories read, and written to replay.
        processor_record_us: a record through Faust.
        processor_idle_cores: each processor.
        kafka_byte_us: a byte of trajectories written and read, as of replay.
        kafka_record_us: a record, of both topics.
        kafka_idle_cores: a broker.
        kafka_worker_cores: a broker's fetches for each worker.
        kafka_partition_cores: for each partition of trajectories.
        intake_step_us: a step decoded and told apart at the learner.
        intake_byte_us: a byte of trajectories, as of replay, decoded.
        intake_record_us: a record.
        intake_idle_cores: the learner.
        intake_worker_cores: the learner's windows, looked at 50 times a second, for
            each worker (of 1,000).
        insert_row_us: a row into the replay buffer (`rollstream bench replay-buffer`:
            4.5 M rows/s).
        draw_row_us: a row drawn by priority, and its priority set (the same: 2.07 M
            rows/s).
        copy_byte_us: a byte of observations copied out of the buffer (2.5 GB/s).
        open_byte_us: a byte that zstd gives back (1 GB/s).
        learn_row_us: a row of an update but for its operations (`bench scaling --axis
            updates`).
        gradient_step_us: a step of the optimiser, whatever the rows (`bench scaling
            --axis updates`).
        training_mflop_us: a million operations of learning, by torch (the same).
        credit_entry_bytes: of a Credit, for each worker (encoded 1,000 of them).
        credit_encode_us: at the learner, for each worker in it (the same).
        credit_decode_us: at a worker, for each worker in it (the same).
        metrics_point_us: at whoever watches, a role's metrics of a second (decoded
            1,000, folded).
        worker_mb: a worker's own memory, forked beside others (`infra/experiments/
            cartpole-5000.yaml`).
        worker_record_share: of a worker's memory, by the bytes of a record (resident
            memory with 16 and with 5,000 environments).
        processor_mb: a processor with small records.
        processor_record_share: of processors' memory for each worker, by the bytes of a
            record (resident memory with 1 to 32 workers).
        learner_mb: a learner without experience: torch and all (resident, 20 updates).
        evaluator_mb: an evaluator.
        kafka_mb: a broker: a heap of 512 MB, buffers, code.
        zookeeper_mb: ZooKeeper.
    """

    worker_step_us: float = 0.234
    worker_vector_step_us: float = 36.5
    worker_record_us: float = 688.0
    worker_idle_cores: float = 0.0169
    acting_mflop_us: float = 9.48
    processor_step_us: float = 0.131
    processor_byte_us: float = 0.00148
    processor_record_us: float = 1350.0
    processor_idle_cores: float = 0.0297
    kafka_byte_us: float = 0.00431
    kafka_record_us: float = 1090.0
    kafka_idle_cores: float = 0.0668
    kafka_worker_cores: float = 0.00119
    kafka_partition_cores: float = 0.000978
    intake_step_us: float = 0.0349
    intake_byte_us: float = 0.0
    intake_record_us: float = 406.0
    intake_idle_cores: float = 0.017
    intake_worker_cores: float = 0.00035
    insert_row_us: float = 0.22
    draw_row_us: float = 0.48
    copy_byte_us: float = 0.0004
    open_byte_us: float = 0.001
    learn_row_us: float = 0.313
    gradient_step_us: float = 676.0
    training_mflop_us: float = 10.2
    credit_entry_bytes: float = 11.0
    credit_encode_us: float = 1.7
    credit_decode_us: float = 4.3
    metrics_point_us: float = 60.0
    worker_mb: float = 29.0
    worker_record_share: float = 9.0
    processor_mb: float = 93.0
    processor_record_share: float = 17.0
    learner_mb: float = 650.0
    evaluator_mb: float = 60.0
    kafka_mb: float = 700.0
    zookeeper_mb: float = 130.0


MEASURED = Constants()
"""What plans are made with."""
