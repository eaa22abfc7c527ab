"""A past in real topics, what it is replayed into, and what must be true of that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from infra.control.experiments import publish_experiment, read_experiment
from infra.control.members import ensure_experiment_topics, ensure_shared_topics
from infra.errors import TopicError
from infra.kafka.clients import make_admin, make_consumer, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.offsets import delete_before
from infra.kafka.reading import Message, committed_offsets, read_to_end
from infra.settings import Settings
from schemas.codec import decode, encode
from schemas.experiment import Experiment
from schemas.records import (
    EnvDescription,
    Member,
    MetricsPoint,
    ReplayProgress,
    SpaceField,
    StreamEnd,
    TransitionBatch,
    Unroll,
)
from schemas.topics import (
    LINEAGE,
    MEMBERS,
    METRICS,
    REPLAY,
    TRAJECTORIES,
    Topic,
    group_name,
    topic_name,
    worker_index,
    worker_partition,
)
from tests.integration.processor_rig import ROOT, wait_until
from tests.unit.pasts import small, stream
from tests.unit.test_processor_oracle import assert_same, make_end, owed_by_log, rows_of

PROCESSOR = {"nStep": 3, "gamma": 0.9, "rewardScale": 0.5}
PARTITIONS = 3
WORKERS = 5
ENV = EnvDescription(
    "Counting-v0", (SpaceField("", "box", "<f4", ()),),
    (SpaceField("", "discrete", "<i8", (), n=(2,), start=(0,)),), None, "sync", {},
)  # fmt: skip

Key = tuple[str, int, int]


class ReplayRig:
    """One past, and any number of experiments that it is replayed into."""

    def __init__(self, settings: Settings, tmp_path: Path) -> None:
        self.settings = settings
        self.tmp_path = tmp_path
        self.sender = Sender(make_producer(settings, client_id="rig"))
        self._children: list[subprocess.Popen[bytes]] = []
        self.source = self.publish("old", workers={"replicas": WORKERS})

    def close(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.kill()
            child.communicate()

    def name(self, word: str) -> str:
        return f"{word}-{uuid.uuid4().hex[:8]}"

    def publish(self, word: str, **spec: Any) -> str:
        """Publish an experiment that nobody runs; return its name."""
        values = {
            "processor": PROCESSOR, "topics": {"partitions": PARTITIONS}, **spec,
        }  # fmt: skip
        experiment: Experiment = small(self.name(word), **values)
        ensure_shared_topics(self.settings)
        ensure_experiment_topics(self.settings, experiment)
        publish_experiment(self.sender, experiment, f"{word}1", -1)
        return experiment.name

    def put_member(self, name: str, role: str = "worker") -> None:
        run_id = read_experiment(self.settings, name).run_id
        member = Member(name, run_id, role, 0, "here", 1, 0, ENV)
        topic = topic_name(MEMBERS, name)
        self.sender.send_and_wait(topic, encode(member), f"{role}/0")

    def fill(self, records: int = 40, left_open: bool = True) -> int:
        """Write two incarnations of each worker, a repeat, and one put back late.

        Args:
            records: in each stream.
            left_open: nobody closes the last stream of w1.

        Returns:
            how many valid rows there are.
        """
        rng = np.random.default_rng(0)
        run_id = read_experiment(self.settings, self.source).run_id
        mine = {"experiment": self.source, "run_id": run_id}
        log: list[Unroll | StreamEnd] = []
        for index in range(WORKERS):
            for incarnation in (10 + index, 20 + index):
                is_last = incarnation >= 20
                log += stream(
                    rng, f"w{index}", incarnation, records=records, crashes=0.02,
                    at_ms=1_000_000 + incarnation // 20 * 100_000 + index,
                    end=not is_last or index % 2 == 0, **mine,
                )  # fmt: skip
        log.sort(key=lambda each: each.produced_at_ms)
        late = log.pop(next(i for i, e in enumerate(log) if e.worker == "w1"))
        log.append(log[-1])  # again
        ends = [make_end("w3", 23)] + [make_end("w1", 21)] * (not left_open)
        # Of another run: passed over.
        foreign = replace(log[0], run_id="old0", incarnation=1)
        for record in (foreign, *log, *(replace(end, **mine) for end in ends)):
            self.put(record)
        self.put(late, {"rollstream-reinjected": "1"})
        self.put_member(self.source)
        assert self.sender.flush(60.0) == 0
        unrolls = [each for each in (*log[:-1], late) if isinstance(each, Unroll)]
        return sum(int(each.valid.array().sum()) for each in unrolls)

    def put(self, record: Any, headers: dict[str, str | bytes | None] | None = None):
        partition = worker_partition(worker_index(record.worker), PARTITIONS)
        self.sender._producer.produce(
            topic_name(TRAJECTORIES, self.source),
            encode(record),
            record.worker,
            partition,
            headers=headers or {},
        )

    def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        """Let the log's start pass: what retention does when its time has come."""
        admin = make_admin(self.settings)
        (future,) = delete_before(admin, {(topic, partition): offset}, 60.0).values()
        future.result(60.0)

    # ---- processes

    def start(self, module: str, name: str, **environment: str) -> subprocess.Popen:
        return self.popen([sys.executable, "-m", module, name], **environment)

    def replay(self, *arguments: str, source: str = "") -> subprocess.Popen[bytes]:
        """Start the command; what it says goes to a file."""
        command = [sys.executable, "-m", "rollstream.cli", "replay"]
        return self.popen([*command, source or self.source, *arguments])

    def popen(self, command: list[str], **environment: str) -> subprocess.Popen[bytes]:
        with (self.tmp_path / "rig.log").open("ab") as log:
            child = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": str(ROOT),
                    "ROLLSTREAM_DATA_DIR": str(self.settings.data_dir),
                    **environment,
                },
            )
        self._children.append(child)
        return child

    @contextmanager
    def processor(self, name: str) -> Iterator[None]:
        child = self.start("stream_processors.app", name)
        try:
            yield
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(90)

    def log(self) -> str:
        return (self.tmp_path / "rig.log").read_text(errors="replace")

    # ---- what is in the topics

    def messages(self, topic: Topic, name: str) -> Iterator[Any]:
        partitions = PARTITIONS if topic.partitioned else 1
        for partition in range(partitions):
            yield from read_to_end(
                self.settings, topic_name(topic, name), partition, timeout_s=60.0
            )

    def trajectories(self, name: str) -> dict[int, list[Unroll | StreamEnd]]:
        """Return the run's records by partition, as whoever reads committed data."""
        run_id = read_experiment(self.settings, name).run_id
        found: dict[int, list[Unroll | StreamEnd]] = {p: [] for p in range(PARTITIONS)}
        for message in self.messages(TRAJECTORIES, name):
            record = decode(message.value, Unroll, StreamEnd)
            if record.run_id == run_id:
                found[message.partition].append(record)
        return found

    def batches(self, name: str) -> dict[Key, bytes]:
        """Return the run's transition batches, each once."""
        found: dict[Key, bytes] = {}
        run_id = read_experiment(self.settings, name).run_id
        for message in self.messages(REPLAY, name):
            batch = decode(message.value, TransitionBatch)
            if batch.run_id == run_id:
                key = batch.worker, batch.incarnation, batch.sequence
                assert found.setdefault(key, message.value) == message.value
        return found

    def standing(self, name: str) -> ReplayProgress | None:
        """How far a replay is; None: not begun, and maybe not even published."""
        try:
            found = [m for m in self.messages(LINEAGE, name) if is_progress(m)]
        except TopicError:
            return None
        return decode(found[-1].value, ReplayProgress) if found else None

    def steps_in(self, name: str) -> int:
        standing = self.standing(name)
        return sum(each.env_steps for each in standing.data) if standing else 0

    def wait_for_more(self, child: subprocess.Popen[bytes], name: str) -> None:
        """Wait until a replay, which must not come to its end, has committed more."""
        before = self.steps_in(name)

        def has_moved() -> bool:
            assert child.poll() is None, self.log()[-3000:]
            return self.steps_in(name) > before

        wait_until(has_moved, 120.0, "something more is in")

    def metrics(self, name: str, role: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for message in self.messages(METRICS, name):
            record = decode_point(message.value)
            if record is not None and record.role == role and record.values:
                found = dict(record.values)
        return found

    def wait_until_processed(self, name: str) -> None:
        """Wait until processors have acknowledged the last record of each partition."""
        topic = topic_name(TRAJECTORIES, name)
        ends = {}
        for message in self.messages(TRAJECTORIES, name):
            ends[message.partition] = message.offset + 1
        consumer = make_consumer(
            self.settings, group=group_name(name, "processor"), client_id="rig"
        )

        def is_done() -> bool:
            committed = committed_offsets(consumer, topic, list(ends))
            return all(committed[p] >= end for p, end in ends.items())

        try:
            wait_until(is_done, 120.0, f"{topic} is acknowledged to {ends}")
        finally:
            consumer.close()

    # ---- what must be true

    def check_is_whole(
        self, name: str, source: dict[int, list[Unroll | StreamEnd]] | None = None
    ) -> None:
        """Each record of the source once, in its order; what was open is closed."""
        for partition, log in (source or self.trajectories(self.source)).items():
            expected = without_repeats(log)
            found = self.trajectories(name)[partition]
            extra = [each for each in found if is_added(each)]
            assert [as_of(self.source, e) for e in found if not is_added(e)] == [
                as_of(self.source, e) for e in expected
            ]
            assert len({e.worker for e in extra}) == len(extra), "closed once"

    def check_returns(self, name: str, n: int, gamma: float, scale: float) -> None:
        """Batches are what a slow reader of the target's own trajectories owes."""
        owed, found = {}, {}
        for log in self.trajectories(name).values():
            owed |= owed_by_log(log, n, gamma, scale)
        for value in self.batches(name).values():
            found |= rows_of(decode(value, TransitionBatch))
        assert_same(found, owed)


def is_progress(message: Message) -> bool:
    return message.key.startswith("replay/")


def decode_point(value: bytes) -> MetricsPoint | None:
    try:
        return decode(value, MetricsPoint)
    except ValueError:
        return None


def without_repeats(log: list[Unroll | StreamEnd]) -> list[Unroll | StreamEnd]:
    seen: set[Key] = set()
    found = []
    for each in log:
        if isinstance(each, Unroll):
            key = each.worker, each.incarnation, each.sequence
            if key in seen:
                continue
            seen.add(key)
        found.append(each)
    return found


def is_added(record: Unroll | StreamEnd) -> bool:
    """Whether the replay made it, to close what was open."""
    return isinstance(record, StreamEnd) and record.reason.startswith("the end of what")


def as_of(experiment: str, record: Any) -> Any:
    return replace(record, experiment=experiment, run_id="")
