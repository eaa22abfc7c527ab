"""An experiment on the real broker, with the test in the learner's place."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.control.experiments import PublishedExperiment, publish_experiment
from infra.control.members import ensure_experiment_topics
from infra.control.role import RoleContext
from infra.kafka.clients import Traffic, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import Message, read_to_end
from infra.settings import Settings
from schemas.codec import decode_any, encode
from schemas.experiment import Experiment, from_values
from schemas.records import (
    NO_POLICY,
    Credit,
    PolicyGraph,
    StreamEnd,
    Unroll,
    WorkerCredit,
)
from schemas.topics import CREDITS, MEMBERS, POLICIES, TRAJECTORIES, Topic
from tests.unit.envs.graphs import RUN_ID
from tests.unit.envs.patient import FLUSH_S

ROOT = Path(__file__).parents[3]
# Busy machines: what takes seconds alone takes several times as long.
PATIENCE_S = 90.0


class RoleProcess(subprocess.Popen[bytes]):
    """A role's process; what it says goes to a file, and never waits for a reader."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._said = tempfile.TemporaryFile()
        super().__init__(words, cwd=ROOT, env=environment, stderr=self._said)

    @property
    def said(self) -> str:
        """What it has written to stderr so far."""
        # It writes where this file's position is: that must stay.
        return os.pread(self._said.fileno(), 1 << 24, 0).decode(errors="replace")

    def stop(self) -> int:
        """Ask it to stop; return its exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait(PATIENCE_S)

    def end(self) -> None:
        """Kill it if it runs."""
        self.kill()
        self.wait()
        self._said.close()


class Trial:
    """One experiment: publishes what others would, reads what the roles wrote."""

    def __init__(self, settings: Settings, **spec: Any) -> None:
        self.settings = settings
        self.name = f"t-{uuid.uuid4().hex[:10]}"
        self.spec = {"env": {"id": "CartPole-v1"}, "topics": {"partitions": 2}} | spec
        self.sender = Sender(
            make_producer(settings, client_id="test", traffic=Traffic.CONTROL)
        )
        self.published: PublishedExperiment | None = None
        self.children: list[RoleProcess] = []
        self.over = threading.Event()
        self.credit: Credit | None = None
        self.learner = threading.Thread(target=self._repeat_credit, daemon=True)
        ensure_experiment_topics(settings, self.experiment())
        self.publish("running")

    def experiment(self, state: str = "running") -> Experiment:
        """The experiment in a state."""
        return from_values(
            {
                "apiVersion": "rollstream/v1",
                "kind": "Experiment",
                "metadata": {"name": self.name},
                "spec": self.spec | {"state": state},
            }
        )

    def publish(self, state: str) -> None:
        """Publish the spec in a state."""
        before = self.published.offset if self.published else -1
        experiment = self.experiment(state)
        self.published = publish_experiment(self.sender, experiment, RUN_ID, before)

    def context(self, role: str = "worker", index: int = 0) -> RoleContext:
        """What a role process of the experiment would know."""
        assert self.published is not None
        offset = self.published.offset
        return RoleContext(
            self.settings, self.experiment(), RUN_ID, role, index, offset
        )

    def start(
        self, role: str = "worker", index: int = 0, flush_s: float = PATIENCE_S
    ) -> RoleProcess:
        """Start a role process as an agent would; it may deliver for so long."""
        more = {
            "ROLLSTREAM_ENV_MODULES": "tests.unit.envs",
            "OMP_NUM_THREADS": "1",
            FLUSH_S: str(flush_s),
        }
        module = "tests.unit.envs.patient"
        words = [sys.executable, "-m", module, role, self.name, "--index", str(index)]
        self.children.append(RoleProcess(words, os.environ | more))
        return self.children[-1]

    def close(self) -> None:
        """End whatever still runs."""
        self.over.set()
        if self.learner.is_alive():
            self.learner.join()
        for child in self.children:
            child.end()

    def grant(
        self,
        incarnation: int,
        allowed: int,
        *,
        epoch: int = 0,
        worker: str = "w0",
        **more: Any,
    ) -> None:
        """Give a worker credit, and say so again and again as a learner does."""
        values: dict[str, Any] = {
            "experiment": self.name,
            "run_id": RUN_ID,
            "learner": "learner/0",
            "epoch": epoch,
            "min_policy": NO_POLICY,
            "allowed": {worker: WorkerCredit(incarnation, allowed)},
            "produced_at_ms": 0,
        }
        self.credit = Credit(**(values | more))
        self.send(CREDITS, self.credit, "learner/0")
        if not self.learner.is_alive():
            self.learner.start()

    def pace(self, unrolls: int = 1) -> None:
        """Let worker 0, in its newest incarnation, make some more unrolls."""
        newest = [m.offset for m in self.messages(MEMBERS) if m.key == "worker/0"][-1]
        made = [u.first_step + u.num_steps for u in self.unrolls_of(newest)]
        length = self.experiment().spec.workers.unroll_length
        self.grant(newest, max(made, default=0) + length * unrolls)

    def unrolls_of(self, incarnation: int) -> list[Unroll]:
        """The unrolls of an incarnation so far."""
        return [u for u in self.unrolls() if u.incarnation == incarnation]

    def _repeat_credit(self) -> None:
        while not self.over.wait(0.2):
            self.send(CREDITS, self.credit, "learner/0")

    def send(self, topic: Topic, record: Any, key: str) -> int:
        """Publish a record; return its offset."""
        return self.sender.send_and_wait(
            self.context().topic(topic), encode(record), key, timeout_s=PATIENCE_S
        )

    def send_policy(self, record: Any) -> int:
        """Publish a graph or a version."""
        is_graph = isinstance(record, PolicyGraph)
        return self.send(POLICIES, record, "graph" if is_graph else "policy")

    def messages(self, topic: Topic, partition: int = 0) -> list[Message]:
        """What a topic holds."""
        return list(read_to_end(self.settings, self.context().topic(topic), partition))

    def records(self, topic: Topic, partition: int = 0) -> list[Any]:
        """What a topic holds, decoded."""
        return [decode_any(m.value) for m in self.messages(topic, partition)]

    def unrolls(self, partition: int = 0) -> list[Unroll]:
        """The unrolls so far."""
        records = self.records(TRAJECTORIES, partition)
        return [record for record in records if isinstance(record, Unroll)]

    def ends(self) -> list[StreamEnd]:
        """The stream ends so far."""
        records = self.records(TRAJECTORIES)
        return [record for record in records if isinstance(record, StreamEnd)]


def until(
    condition: Callable[[], Any],
    timeout_s: float = PATIENCE_S,
    by: subprocess.Popen[Any] | None = None,
) -> Any:
    """Wait until a condition holds; return what it gave.

    ``by``: who brings it about; when it ends and has not, nothing is waited for.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        has_ended = by is not None and by.poll() is not None
        if found := condition():
            return found
        if has_ended:
            raise AssertionError(f"it ended with {by.returncode}: {said_by(by)}")
        assert time.monotonic() < deadline_s, f"waited in vain: {said_by(by)}"
        time.sleep(0.05)


def said_by(process: subprocess.Popen[Any] | None) -> str:
    """What a role process has said, as far as it is known."""
    return process.said[-2000:] if isinstance(process, RoleProcess) else ""


def check_streams(unrolls: list[Unroll]) -> dict[int, int]:
    """Assert that no stream has a hole; return the steps of each incarnation."""
    expected: dict[int, tuple[int, int]] = {}
    for unroll in unrolls:
        sequence, step = expected.get(unroll.incarnation, (0, 0))
        assert (unroll.sequence, unroll.first_step) == (sequence, step)
        expected[unroll.incarnation] = (sequence + 1, step + unroll.num_steps)
    return {incarnation: step for incarnation, (_, step) in expected.items()}
