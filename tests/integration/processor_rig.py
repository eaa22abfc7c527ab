"""Real processors on a real broker, and the checker of what they write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, TopicPartition

from infra.control.experiments import publish_experiment
from infra.control.members import ensure_experiment_topics, ensure_shared_topics
from infra.errors import RollstreamError
from infra.kafka.clients import make_consumer, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import Message, committed_offsets, end_offsets, read_to_end
from infra.settings import Settings
from schemas.codec import decode, encode
from schemas.experiment import Experiment, from_values
from schemas.records import Member, StreamEnd, TransitionBatch, Unroll
from schemas.topics import (
    MEMBERS,
    REPLAY,
    TRAJECTORIES,
    Topic,
    group_name,
    topic_name,
    worker_partition,
)
from tests.integration.processor_load import Load, loaded
from tests.unit.test_processor_oracle import (
    Owed,
    Row,
    assert_same,
    owed_by_log,
    rows_of,
)

ROOT = Path(__file__).parents[2]
__all__ = ["ROOT", "Load", "Rig", "loaded", "terminate", "wait_until"]

_ROLE = """
from infra.control.role import role_main
from stream_processors.app import run
role_main("processor", run)
"""
N, GAMMA, SCALE = 3, 0.9, 0.5
LEAVES_S = 30.0
"""A processor ends itself 7.5 s after it was told to, and the machine may stall; Faust
alone waits a minute or more for a broker that is away."""

PATIENT = "import stream_processors.app as app\napp.SESSION_S = 25.0\n"
"""Runs first in a processor of which nothing may be handled twice: a machine that
stalls for longer than a session makes a group rebalance, and read again."""


def wait_until(ready: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


class Rig:
    """One experiment: its topics, processors, load and checks."""

    def __init__(
        self,
        settings: Settings,
        tmp_path: Path,
        partitions: int = 4,
        prelude: str = "",
        **spec: Any,
    ) -> None:
        self.settings = settings
        self._prelude = prelude
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
        module = ("-m", "stream_processors.app")
        if self._prelude:
            module = ("-c", f"{self._prelude}\n{_ROLE}")
        with self._log.open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, *module, self.name, "--index", str(index)],
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

    def wait_until_up(self, *children: subprocess.Popen[bytes]) -> None:
        """Wait until they have registered: a signal is no longer the death of them."""
        wanted = {child.pid for child in children}

        def are_up() -> bool:
            members = [decode(m.value, Member) for m in self.messages(MEMBERS)]
            return wanted <= {member.pid for member in members}

        wait_until(are_up, 90.0, "they have registered")

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
        asked = committed_offsets(self._offsets, self.source, range(self.partitions))
        found = {partition: max(0, offset) for partition, offset in asked.items()}
        for partition, offset in found.items():
            before = self._highest.get(partition, 0)
            if offset < before:
                self.went_back.append((partition, before, offset))
            self._highest[partition] = max(before, offset)
        return found

    def commit(self, partition: int, offset: int) -> None:
        """Commit what a processor would have that has left since."""
        where = TopicPartition(self.source, partition, offset)
        self._offsets.commit(offsets=[where], asynchronous=False)

    def end(self) -> int:
        """Return how many offsets the trajectories have, over all partitions."""
        return sum(end_offsets(self._offsets, self.source).values())

    def is_all_committed(self) -> bool:
        """Whether nothing is left."""
        try:
            return sum(self.committed().values()) == self.end()
        except (KafkaException, RollstreamError):  # the broker is away
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

    def wait_until_each_committed(self, more: int) -> None:
        """The same of every partition: whoever held it."""
        self._num_committed()
        goals = {p: self._highest.get(p, 0) + more for p in range(self.partitions)}

        def are_reached() -> bool:
            self._num_committed()
            return all(self._highest[p] >= goal for p, goal in goals.items())

        wait_until(are_reached, 90.0, f"{more} more of each partition acknowledged")

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


def terminate(child: subprocess.Popen[bytes]) -> int:
    """Ask a processor to stop, and see that it does; return its exit code."""
    child.terminate()
    return child.wait(LEAVES_S)
