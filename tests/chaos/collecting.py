"""The broker's logs after a run -> what the checker reads."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, TopicPartition

from infra.kafka.clients import make_consumer
from infra.kafka.reading import Message, read_to_end, watermarks
from infra.settings import Settings
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.experiment import Experiment
from schemas.records import PolicyVersion, StreamEnd, TransitionBatch, Unroll
from schemas.topics import POLICIES, REPLAY, TRAJECTORIES, topic_name
from tests.chaos.evidence import Address, Evidence, Logged, Published

KINDS = {"trajectories": TRAJECTORIES, "replay": REPLAY}
_NO_PROGRESS_S = 60.0


def collect(settings: Settings, experiment: Experiment, run_id: str) -> Evidence:
    """Read all that the broker holds of a run, with fresh readers."""
    processor = experiment.spec.processor
    evidence = Evidence(
        experiment.name, processor.n_step, processor.gamma, processor.reward_scale
    )
    partitions = experiment.spec.topics.partitions
    for kind, topic in KINDS.items():
        name = topic_name(topic, experiment.name)
        log = [
            logged(message, run_id)
            for partition in range(partitions)
            for message in read_to_end(settings, name, partition)
        ]
        setattr(evidence, kind, log)
        evidence.second_digests[kind] = {
            (m.partition, m.offset): _digest(m.value)
            for partition in range(partitions)
            for m in read_to_end(settings, name, partition)
        }
    committed = {each.address for each in evidence.trajectories}
    name = topic_name(TRAJECTORIES, experiment.name)
    evidence.uncommitted = read_uncommitted(settings, name, partitions) - committed
    evidence.policies = _policies(settings, experiment, run_id)
    return evidence


def logged(message: Message, run_id: str) -> Logged:
    """Return a record as evidence; of another run or kind: None."""
    record: Unroll | StreamEnd | TransitionBatch | None
    try:
        record = decode(message.value, Unroll, StreamEnd, TransitionBatch)
    except SchemaError:
        record = None
    if record is not None and record.run_id != run_id:
        record = None
    at_s = message.timestamp_ms / 1000
    digest = _digest(message.value)
    return Logged(message.partition, message.offset, at_s, record, digest)


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:16]


def read_uncommitted(settings: Settings, topic: str, partitions: int) -> set[Address]:
    """Return where records are, those of aborted transactions included."""
    reader = make_consumer(
        settings,
        group=None,
        client_id="chaos-uncommitted",
        overrides={
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        },
    )
    with closing(reader):
        return {
            (partition, offset)
            for partition in range(partitions)
            for offset in _offsets(reader, topic, partition)
        }


def _offsets(reader: Consumer, topic: str, partition: int) -> Iterator[int]:
    first, _ = watermarks(reader, topic, partition)
    reader.assign([TopicPartition(topic, partition, first)])
    deadline_s = time.monotonic() + _NO_PROGRESS_S
    while time.monotonic() < deadline_s:
        for message in reader.consume(500, 0.1):
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return
            if error is None:
                yield int(message.offset() or 0)
                deadline_s = time.monotonic() + _NO_PROGRESS_S
    raise AssertionError(f"{topic}[{partition}]: nothing is read")


def _policies(
    settings: Settings, experiment: Experiment, run_id: str
) -> list[Published]:
    found = []
    for message in read_to_end(settings, topic_name(POLICIES, experiment.name)):
        if message.key != "policy":
            continue
        record = decode(message.value, PolicyVersion)
        if record.run_id == run_id:
            version = record.epoch, record.version
            found.append(Published(message.offset, version))
    return found


def wait_until(
    ready: Callable[[], object], timeout_s: float, what: str, every_s: float = 0.05
) -> None:
    """Wait until a condition holds; an AssertionError says what did not come."""
    deadline_s = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(every_s)
