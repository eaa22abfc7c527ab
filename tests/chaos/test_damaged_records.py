"""A byte on the broker's disk is another one: told, not used, not passed over."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from infra.cluster import broker
from infra.cluster.local import cluster_dir
from infra.errors import TopicError
from infra.kafka.reading import read_to_end
from infra.kafka.topic_admin import alter_config
from infra.settings import Settings
from learner.chunks import reference
from learner.restore import read_referenced
from schemas.codec import decode
from schemas.records import StreamEnd, TransitionBatch
from schemas.topics import REPLAY
from tests.chaos.evidence import Evidence
from tests.integration.learner_rig import Rig as LearnerRig
from tests.integration.learner_rig import cached_export, experiment  # noqa: F401
from tests.integration.processor_rig import Rig as ProcessorRig
from tests.integration.processor_rig import wait_until
from tests.unit.test_processor_oracle import make_unroll

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

# More than two segments of the least size that Kafka allows.
SEGMENT = {"segment.bytes": str(2**20)}
NUM_RECORDS, STEPS, FLUSH_EVERY = 300, 250, 10
NUM_BATCHES, BATCHES_A_FLUSH = 600, 50  # of 5 kB


def flip_a_byte(own: Settings, topic: str, partition: int = 0) -> None:
    """In the records of the third batch of the first closed segment."""
    data = broker.log_dir(broker.broker_service(cluster_dir(own)))
    first, *_, last = sorted((data / f"{topic}-{partition}").glob("*.log"))
    assert first != last, "there is a closed one"
    log = first.read_bytes()
    at = 0
    for _ in range(2):
        at += size_of_batch(log, at)
    place = at + size_of_batch(log, at) // 2
    with first.open("r+b") as file:
        file.seek(place)
        file.write(bytes([log[place] ^ 1]))


def size_of_batch(log: bytes, at: int) -> int:
    """An offset of 8 bytes, the length of what follows in 4, and that."""
    return 12 + int.from_bytes(log[at + 8 : at + 12])


def report(record_fault, who: str) -> None:
    evidence = Evidence(who, n_step=3, gamma=0.9, reward_scale=0.5)
    record_fault(f"F23 ({who})", evidence, what="flip a byte", injected=1, findings=0)


def test_processors_say_which_partition_is_damaged_and_read_the_others(
    settings: Settings, tmp_path: Path, record_fault
) -> None:
    with ProcessorRig(settings, tmp_path, partitions=2) as rig:
        alter_config(settings, rig.source, SEGMENT)
        rng = np.random.default_rng(0)
        for sequence in range(NUM_RECORDS):
            for worker in ("w0", "w1"):
                unroll = make_unroll(
                    rng.normal(size=(STEPS, 2)).tolist(),
                    worker=worker,
                    sequence=sequence,
                    first_step=STEPS * sequence,
                    experiment=rig.name,
                    produced_at_ms=time.time_ns() // 1_000_000,
                )
                rig.put(unroll)
            if (sequence + 1) % FLUSH_EVERY == 0:
                rig.flush()
        flip_a_byte(settings, rig.source)
        children = [rig.start(0), rig.start(1)]
        # The last few of w1 wait for the record after them.
        wait_until(
            lambda: rig.committed()[1] >= NUM_RECORDS - 1, 90.0, "the other partition"
        )
        wait_until(lambda: "corrupt-record" in rig.log(), 90.0, "it is told")
        for worker in ("w0", "w1"):
            rig.put(StreamEnd(rig.name, "run1", worker, 1, "", 0))
        rig.flush()
        wait_until(
            lambda: rig.committed()[1] == NUM_RECORDS + 1, 90.0, "what came later"
        )
        assert rig.committed()[0] <= damaged_offset(settings, rig.source)
        assert [child.poll() for child in children] == [None, None]
        assert f"{rig.source}[0]: a record at offset" in rig.log()
        assert "Traceback" not in rig.log()
        rows = [decode(m.value, TransitionBatch) for m in rig.messages(REPLAY)]
        first = list({b.sequence: None for b in rows if b.worker == "w0"})
        assert first == list(range(len(first))), "nothing before it is missing"
        other = list({b.sequence: None for b in rows if b.worker == "w1"})
        assert other == list(range(NUM_RECORDS))
    report(record_fault, "processor")


def damaged_offset(settings: Settings, topic: str) -> int:
    """Where a reader of ours stops, and says so: the first offset of the batch."""
    read = []
    with pytest.raises(TopicError, match=r"\[0\] cannot be read: .*failed CRC32C"):
        for message in read_to_end(settings, topic, 0):
            read.append(message.offset)
    assert read
    return read[-1] + 1


def test_a_buffer_is_rebuilt_from_what_is_not_damaged(
    settings: Settings,
    cached_export: None,  # noqa: F811
) -> None:
    rig = LearnerRig(settings, experiment())
    try:
        topic = rig.topic(REPLAY)
        alter_config(settings, topic, SEGMENT)
        incarnations = {f"w{index}": rig.start_worker(index) for index in (0, 1)}
        for first in range(0, NUM_BATCHES, BATCHES_A_FLUSH):
            for worker, incarnation in incarnations.items():
                rig.send(worker, incarnation, *range(first, first + BATCHES_A_FLUSH))
        references = [
            reference(decode(message.value, TransitionBatch), partition, message.offset)
            for partition in (0, 1)
            for message in read_to_end(settings, topic, partition)
        ]
        assert len(references) == 2 * NUM_BATCHES
        flip_a_byte(settings, topic)
        damaged = damaged_offset(settings, topic)
        found = [
            (partition, offset)
            for partition, offset, _ in read_referenced(
                settings, topic, rig.run_id, references
            )
        ]
        assert sorted(found) == [
            *((0, offset) for offset in range(damaged)),
            *((1, offset) for offset in range(NUM_BATCHES)),
        ]
    finally:
        rig.close()


def test_a_learner_says_which_partition_is_damaged_and_reads_the_others(
    settings: Settings,
    record_fault,
    cached_export: None,  # noqa: F811
) -> None:
    rig = LearnerRig(settings, experiment(samplesPerInsert=0.1))
    try:
        topic = rig.topic(REPLAY)
        alter_config(settings, topic, SEGMENT)
        incarnations = {f"w{index}": rig.start_worker(index) for index in (0, 1)}
        for first in range(0, NUM_BATCHES, BATCHES_A_FLUSH):
            for worker, incarnation in incarnations.items():
                some = range(first, first + BATCHES_A_FLUSH)
                rig.send(worker, incarnation, *some)
        flip_a_byte(settings, topic)
        damaged = damaged_offset(settings, topic)
        learner = rig.start_thread()
        rig.wait_for(lambda: rig.committed().get(1) == NUM_BATCHES, learner=learner)
        rig.wait_for(lambda: rig.committed().get(0) == damaged, learner=learner)
        rig.wait_for(lambda: rig.events("corrupt-record"), learner=learner)
        (reason,) = rig.events("corrupt-record")
        assert f"{topic}[0]" in reason and f"offset {damaged} " in reason
        rig.send("w1", incarnations["w1"], NUM_BATCHES)
        rig.wait_for(lambda: rig.committed().get(1) == NUM_BATCHES + 1, learner=learner)
        assert learner.stop() == 0
        assert rig.committed()[0] == damaged, "it is not passed over"
        assert rig.events("corrupt-record") == [reason], "told once"
        assert rig.metrics()["corrupt_records"] == 1
        assert rig.metrics()["lost_steps"] == 0
        report(record_fault, "learner")
    finally:
        rig.close()
