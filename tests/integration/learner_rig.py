"""A learner process without environments: batches that a test makes up, and records."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import pytest

from infra.control.experiments import new_run_id, publish_experiment
from infra.control.members import ensure_experiment_topics, register
from infra.control.role import RoleContext, StopRequest
from infra.kafka.clients import make_consumer, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import committed_offsets, read_to_end
from learner import actor_graph, loop, train
from learner.actor_graph import export_actor
from learner.checkpoint import CheckpointStore
from learner.train import run
from schemas.codec import decode_any, encode
from schemas.records import (
    Credit,
    Event,
    MetricsPoint,
    PolicyVersion,
)
from schemas.topics import (
    CREDITS,
    DEAD_LETTERS,
    EVENTS,
    METRICS,
    POLICIES,
    REPLAY,
    worker_index,
)
from tests.integration.bundled_export import bundled_or
from tests.integration.learner_batches import ENV, experiment, make_batch

__all__ = ["ENV", "PATIENT_S", "Rig", "cached_export", "experiment", "make_batch"]

ROOT = Path(__file__).parents[2]
PATIENT_S = 60.0
"""A machine may stall for longer than the few seconds a learner has to stop in."""


class LearnerThread:
    """A learner in this process: torch is imported once for all tests."""

    def __init__(self, context):
        self.stop_request = StopRequest()
        self._future = Future()
        self._thread = threading.Thread(target=self._run, args=(context,), daemon=True)
        self._thread.start()

    def _run(self, context):
        try:
            self._future.set_result(run(context, self.stop_request))
        except BaseException as exc:
            self._future.set_exception(exc)

    def poll(self):
        """What it ended with; None while it runs."""
        if not self._future.done():
            return None
        return repr(self._future.exception() or self._future.result())

    def result(self, timeout_s=200.0):
        """Its exit code; raises what it raised."""
        return self._future.result(timeout_s)

    def stop(self):
        self.stop_request.set("the test")
        return self.result()

    def end(self):
        """Stop it, however it ends: nothing of it may go on in the next test."""
        self.stop_request.set("the end of the test")
        self._thread.join(PATIENT_S)


class Rig:
    """An experiment whose workers and processors are the test."""

    def __init__(self, settings, experiment):
        self.settings, self.experiment = settings, experiment
        self.name, self.run_id = experiment.name, new_run_id()
        self.sender = Sender(make_producer(settings, client_id="rig"))
        ensure_experiment_topics(settings, experiment)
        self.spec_offset = publish_experiment(
            self.sender, experiment, self.run_id, -1
        ).offset
        self.learners = []
        self.threads = []
        self.journal = {}
        self.sent = Counter()

    def context(self, role="learner", index=0):
        return RoleContext(
            self.settings, self.experiment, self.run_id, role, index, self.spec_offset
        )

    def start_worker(self, index=0, env=ENV, role="worker"):
        return register(self.sender, self.context(role, index), StopRequest(), env)

    def send(self, worker, incarnation, *sequences, **changes):
        """Write batches to the worker's partition, and the journal of unique rows."""
        for sequence in sequences:
            batch = make_batch(
                self.name, self.run_id, worker, incarnation, sequence, **changes
            )
            self.send_bytes(encode(batch), worker)
            rows = int(batch.valid.array().sum())
            self.journal[worker, incarnation, sequence] = rows
        self.flush()

    def flush(self):
        assert self.sender.flush(PATIENT_S) == 0

    def send_bytes(self, value, worker="w0"):
        partition = worker_index(worker) % self.experiment.spec.topics.partitions
        self.sender.send(self.topic(REPLAY), value, worker, partition)
        self.sent[partition] += 1

    def topic(self, topic):
        return self.context().topic(topic)

    @property
    def unique_rows(self):
        return sum(self.journal.values())

    def start_learner(self, prelude=""):
        """Start the role's process; ``prelude`` is Python that runs in it first."""
        code = f"{_PATIENTLY}\n{prelude}\nrole_main('learner', train.run)\n"
        process = subprocess.Popen(
            [sys.executable, "-c", code, self.name, "--index", "0"],
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(ROOT),
                "ROLLSTREAM_DATA_DIR": str(self.settings.data_dir),
            },
        )
        self.learners.append(process)
        return process

    def start_thread(self):
        learner = LearnerThread(self.context())
        self.threads.append(learner)
        return learner

    def run_until(self, condition, **more):
        """Run a learner until a condition holds, then stop it."""
        learner = self.start_thread()
        self.wait_for(condition, learner=learner, **more)
        assert learner.stop() == 0

    @property
    def checkpoints(self):
        root = self.settings.data_dir / "experiments" / self.name / self.run_id
        return CheckpointStore(root / "checkpoints")

    def checkpoint_state(self):
        stored, _ = self.checkpoints.newest()
        return json.loads(stored.files["state.json"])

    def records(self, topic, kind):
        found = []
        for message in self.messages(topic):
            record = decode_any(message.value)
            if isinstance(record, kind):
                found.append(record)
        return found

    def messages(self, topic):
        return read_to_end(self.settings, self.topic(topic), timeout_s=PATIENT_S)

    def metrics(self, incarnation=None):
        """The newest metrics of the learner, as a dict; {} before the first."""
        points = [
            point for point in self.points() if incarnation in (None, point.incarnation)
        ]
        return dict(points[-1].values) if points else {}

    def is_all_told(self):
        """Whether the newest metrics are of when all that was sent had been read."""
        points = self.points()
        positions = points[-1].positions if points else ()
        found = {p.partition: p.position for p in positions}
        return all(found.get(number) == count for number, count in self.sent.items())

    def points(self):
        """All metrics; those without values only say that a process lives."""
        return [p for p in self.records(METRICS, MetricsPoint) if p.values]

    def events(self, kind):
        return [e.reason for e in self.records(EVENTS, Event) if e.kind == kind]

    def dead_letters(self):
        return [decode_any(message.value) for message in self.messages(DEAD_LETTERS)]

    def credits(self):
        return self.records(CREDITS, Credit)

    def policies(self):
        return self.records(POLICIES, PolicyVersion)

    def committed(self, topic=None):
        """The group's committed offsets by partition; those without one are absent."""
        consumer = make_consumer(
            self.settings, group=self.context().group(), client_id="rig-group"
        )
        partitions = range(self.experiment.spec.topics.partitions)
        with contextlib.closing(consumer):
            found = committed_offsets(
                consumer, topic or self.topic(REPLAY), partitions, PATIENT_S
            )
        return {p: offset for p, offset in found.items() if offset >= 0}

    def wait_for(self, condition, timeout_s=120.0, learner=None):
        """Wait until ``condition()`` is true; the learner must not end meanwhile."""
        deadline = time.monotonic() + timeout_s
        while not (result := condition()):
            if learner is not None and learner.poll() is not None:
                raise AssertionError(f"the learner ended: {learner.poll()}")
            assert time.monotonic() < deadline, f"not within {timeout_s} s"
            time.sleep(0.1)
        return result

    def stop(self, learner, timeout_s=120.0):
        learner.send_signal(signal.SIGTERM)
        return learner.wait(timeout_s)

    def close(self):
        for learner in self.learners:
            if learner.poll() is None:
                learner.kill()
                learner.wait()
        for thread in self.threads:
            thread.end()


@pytest.fixture
def cached_export(monkeypatch):
    """Export an actor once, which takes seconds; and let metrics come quickly.

    A last checkpoint has the time that it needs: see ``PATIENT_S``.
    """
    monkeypatch.setattr(loop, "METRICS_S", 0.2)
    monkeypatch.setattr(train, "LAST_SAVE_S", PATIENT_S)
    monkeypatch.setattr(train, "LAST_FLUSH_S", PATIENT_S)
    monkeypatch.setattr(actor_graph, "_export", bundled_or(actor_graph._export))
    monkeypatch.setattr(actor_graph, "export_actor", _export_once)


_PATIENTLY = f"""
from infra.control.role import role_main
from learner import train
from tests.integration.bundled_export import use_in_process
train.LAST_SAVE_S = train.LAST_FLUSH_S = {PATIENT_S}
use_in_process()
"""
_EXPORTED = {}


def _export_once(actor):
    key = tuple((name, t.shape) for name, t in actor.module.state_dict().items())
    if key not in _EXPORTED:
        _EXPORTED[key] = export_actor(actor)
    return _EXPORTED[key]
