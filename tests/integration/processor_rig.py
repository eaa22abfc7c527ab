"""Real processors on a real broker, a load that is never the same, and the checker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from confluent_kafka import KafkaException, TopicPartition

from infra.control.experiments import publish_experiment
from infra.control.members import ensure_experiment_topics, ensure_shared_topics
from infra.kafka.clients import make_consumer, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import Message, end_offsets, read_to_end
from infra.settings import Settings
from schemas.codec import decode, encode
from schemas.experiment import Experiment, from_values
from schemas.records import StreamEnd, TransitionBatch, Unroll
from schemas.topics import (
    REPLAY,
    TRAJECTORIES,
    Topic,
    group_name,
    topic_name,
    worker_name,
    worker_partition,
)
from tests.unit.test_processor_oracle import (
    Owed,
    Row,
    assert_same,
    make_unroll,
    owed_by_log,
    rows_of,
)

ROOT = Path(__file__).parents[2]
N, GAMMA, SCALE = 3, 0.9, 0.5


def wait_until(ready: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


class Rig:
    """One experiment: its topics, processors, load and checks."""

    def __init__(
        self, settings: Settings, tmp_path: Path, partitions: int = 4, **spec: Any
    ) -> None:
        self.settings = settings
        self.partitions = partitions
        self.name = f"proc-{uuid.uuid4().hex[:10]}"
        self.sender = Sender(make_producer(settings, client_id="rig"))
        self._spec_offset = -1
        ensure_experiment_topics(settings, self.publish(**spec))
        self._log = tmp_path / f"{self.name}.log"
        self._cwd = tmp_path / "cwd"
        self._cwd.mkdir(exist_ok=True)
        self._children: list[subprocess.Popen[bytes]] = []
        self._offsets = make_consumer(
            settings, group=group_name(self.name, "processor"), client_id="rig"
        )
        self.source = self.topic(TRAJECTORIES)
        self.went_back: list[tuple[int, int, int]] = []
        self._highest: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._children:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
            child.wait()
        self._offsets.close()
        if kind is not None:
            print(self.log()[-6000:])

    def publish(self, **spec: Any) -> Experiment:
        """Publish the experiment; the next process that starts goes by it."""
        processor = {"nStep": N, "gamma": GAMMA, "rewardScale": SCALE}
        experiment = from_values(
            {
                "apiVersion": "rollstream/v1",
                "kind": "Experiment",
                "metadata": {"name": self.name},
                "spec": {
                    "env": {"id": "CartPole-v1"},
                    "processor": processor,
                    "topics": {"partitions": self.partitions},
                    **spec,
                },
            }
        )
        ensure_shared_topics(self.settings)
        found = publish_experiment(self.sender, experiment, "run1", self._spec_offset)
        self._spec_offset = found.offset
        return experiment

    def topic(self, topic: Topic) -> str:
        return topic_name(topic, self.name)

    def start(self, index: int = 0, **environment: str) -> subprocess.Popen[bytes]:
        assert self.settings.bootstrap_servers and self.settings.zookeeper
        with self._log.open("ab") as log:
            child = subprocess.Popen(
                [
                    *(sys.executable, "-m", "stream_processors.app"),
                    *(self.name, "--index", str(index)),
                ],
                cwd=self._cwd,
                stderr=log,
                stdout=log,
                env={
                    **os.environ,
                    "KAFKA_BOOTSTRAP_SERVERS": self.settings.bootstrap_servers,
                    "ROLLSTREAM_ZOOKEEPER": self.settings.zookeeper,
                    "ROLLSTREAM_DATA_DIR": str(self.settings.data_dir),
                    "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": str(ROOT),
                    **environment,
                },
            )
        self._children.append(child)
        return child

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def litter(self) -> list[str]:
        """What processors left in their working directory."""
        return [path.name for path in self._cwd.iterdir()]

    def put(self, record: Unroll | StreamEnd) -> None:
        index = int(record.worker[1:])
        self.sender.send(
            self.source,
            encode(record),
            record.worker,
            worker_partition(index, self.partitions),
        )

    def put_raw(self, value: bytes | None, partition: int = 0) -> None:
        self.sender.send(self.source, value, "poison", partition)

    def flush(self) -> None:
        assert self.sender.flush(60.0) == 0

    def messages(self, topic: Topic) -> Iterator[Message]:
        for partition in range(self.partitions if topic.partitioned else 1):
            yield from read_to_end(self.settings, self.topic(topic), partition)

    # ---- offsets

    def committed(self) -> dict[int, int]:
        """Ask for the committed offsets; a fall is remembered."""
        wanted = [TopicPartition(self.source, i) for i in range(self.partitions)]
        found = {
            each.partition: max(0, each.offset)
            for each in self._offsets.committed(wanted, timeout=30.0)
        }
        for partition, offset in found.items():
            before = self._highest.get(partition, 0)
            if offset < before:
                self.went_back.append((partition, before, offset))
            self._highest[partition] = max(before, offset)
        return found

    def end(self) -> int:
        """Return how many offsets the trajectories have, over all partitions."""
        return sum(end_offsets(self._offsets, self.source).values())

    def is_all_committed(self) -> bool:
        """Whether nothing is left."""
        try:
            return sum(self.committed().values()) == self.end()
        except KafkaException:  # the broker is away
            return False

    def wait_until_all_committed(self, timeout_s: float = 120.0) -> None:
        self.flush()
        what = f"{self.source} acknowledged to its ends"
        wait_until(self.is_all_committed, timeout_s, what)

    def wait_until_some_committed(self, more: int = 1, timeout_s: float = 90.0) -> None:
        self._num_committed()
        # From here on: what was acknowledged since the last look is not `more`.
        goal = sum(self._highest.values()) + more
        wait_until(
            lambda: self._num_committed() >= goal,
            timeout_s,
            f"{more} more records acknowledged",
        )

    def _num_committed(self) -> int:
        try:
            return sum(self.committed().values())
        except KafkaException:  # the broker is away
            return -1

    # ---- the checker

    def check(self) -> int:
        """Every row once after removing repetitions, and right; return repetitions."""
        found: dict[Row, Owed] = {}
        repeated = 0
        for partition in range(self.partitions):
            topic = self.topic(REPLAY)
            for message in read_to_end(self.settings, topic, partition):
                batch = decode(message.value, TransitionBatch)
                assert batch.source.partition == partition
                assert message.key == batch.worker
                rows = rows_of(batch)
                repeated += sum(row in found for row in rows)
                found |= {row: o for row, o in rows.items() if row not in found}
        assert_same(found, self._owed())
        assert self.went_back == []
        return repeated

    def _owed(self) -> dict[Row, Owed]:
        owed: dict[Row, Owed] = {}
        for partition in range(self.partitions):
            log = [
                decode(message.value, Unroll, StreamEnd)
                for message in read_to_end(self.settings, self.source, partition)
            ]
            owed |= owed_by_log(log, N, GAMMA, SCALE)
        return owed


class Load(threading.Thread):
    """Workers at random: unrolls of 1 to 8 steps, now and then a new incarnation."""

    def __init__(self, rig: Rig, workers: int = 6, rate: float = 60.0) -> None:
        super().__init__(daemon=True)
        self._rig = rig
        self._rng = np.random.default_rng(0)
        self._stop_event = threading.Event()
        self._pause_s = 1.0 / rate
        # Worker -> incarnation, sequence, step.
        self._at = {worker_name(i): [0, 0, 0] for i in range(workers)}
        self.failure: Exception | None = None
        self.count = 0

    def run(self) -> None:
        try:
            while not self._stop_event.wait(self._pause_s):
                self.put(str(self._rng.choice(list(self._at))))
            for worker, (incarnation, _, _) in self._at.items():
                self._rig.put(
                    StreamEnd(self._rig.name, "run1", worker, incarnation + 1, "", 0)
                )
        except Exception as exc:
            self.failure = exc

    def put(self, worker: str) -> None:
        rng, at = self._rng, self._at[worker]
        if rng.random() < 0.02:
            at[:] = at[0] + 1, 0, 0
        shape = (int(rng.integers(1, 9)), 2)
        marks = [[tuple(p) for p in np.argwhere(rng.random(shape) < r)] for r in RATES]
        unroll = make_unroll(
            rng.normal(size=shape).tolist(),
            worker=worker,
            incarnation=at[0],
            sequence=at[1],
            first_step=at[2],
            terminated=marks[0],
            truncated=marks[1],
            invalid=marks[2],
            experiment=self._rig.name,
            produced_at_ms=time.time_ns() // 1_000_000,
        )
        self._rig.put(unroll)
        at[1] += 1
        at[2] += shape[0]
        self.count += 1

    def finish(self) -> None:
        """Stop, and close every stream."""
        self._stop_event.set()
        self.join(90.0)
        assert self.failure is None, self.failure
        self._rig.flush()


RATES = (0.05, 0.05, 0.05)


@contextmanager
def loaded(rig: Rig) -> Iterator[Load]:
    load = Load(rig)
    load.start()
    try:
        yield load
    finally:
        load.finish()


def terminate(child: subprocess.Popen[bytes], within_s: float = 8.5) -> float:
    """Ask a processor to stop; return how long it took."""
    began = time.monotonic()
    child.terminate()
    child.wait(within_s)
    return time.monotonic() - began
