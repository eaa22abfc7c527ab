"""Trajectories -> a real processor -> a real learner, of one experiment."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

from infra.kafka.clients import make_admin
from infra.kafka.offsets import delete_before
from infra.kafka.reading import read_to_end
from schemas.codec import decode, encode
from schemas.records import DeadLetter, Event, Unroll
from schemas.topics import EVENTS, TRAJECTORIES
from tests.integration.learner_rig import Rig, make_batch

ROWS = 8 * 8 - 1  # of an unroll; one of its 64 is not valid
STEPS = 8 * 8
PARTITIONS = 2
_FIELDS = [field.name for field in dataclasses.fields(Unroll)]


def make_unroll(rig: Rig, worker, incarnation, sequence, **changes):
    """The unroll that the learner's batch of that place is made of."""
    batch = make_batch(rig.name, rig.run_id, worker, incarnation, sequence, **changes)
    return Unroll(**{name: getattr(batch, name) for name in _FIELDS})


def put(rig: Rig, *records):
    """Write to the trajectories, and to the journal of what is to be learnt."""
    for record in records:
        partition = int(record.worker[1:]) % PARTITIONS
        topic = rig.topic(TRAJECTORIES)
        rig.sender.send_and_wait(topic, encode(record), record.worker, partition)
        if isinstance(record, Unroll):
            key = record.worker, record.incarnation, record.sequence
            rig.journal[key] = int(record.valid.array().sum())


def put_unrolls(rig: Rig, worker, incarnation, *sequences):
    put(rig, *(make_unroll(rig, worker, incarnation, n) for n in sequences))


def start_python(rig: Rig, how, what, index):
    """A role of the experiment: a module (``-m``) or code (``-c``)."""
    return subprocess.Popen(
        [sys.executable, how, what, rig.name, "--index", str(index)],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "ROLLSTREAM_DATA_DIR": str(rig.settings.data_dir),
        },
    )


@contextmanager
def worker(rig: Rig, index=0):
    """A real worker of the experiment."""
    child = start_python(rig, "-m", "producers.worker", index)
    try:
        yield child
    finally:
        child.terminate()
        wait_for_end(child)


@contextmanager
def processor(rig: Rig, prelude=""):
    """A processor of the learner's experiment; ``prelude`` runs in it first."""
    code = (
        f"{prelude}\nfrom infra.control.role import role_main\n"
        "from stream_processors.app import run\nrole_main('processor', run)\n"
    )
    child = start_python(rig, "-c", code, 0)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGCONT)
            child.terminate()
        wait_for_end(child)


def wait_for_end(child):
    """Of a process that was told to stop; one that does not is not left behind."""
    try:
        child.wait(120)
    finally:
        child.kill()
        child.wait()


def records(rig: Rig, topic, kind=None):
    """All that a read_committed reader finds, over all partitions of the spec."""
    for partition in range(PARTITIONS if topic.partitioned else 1):
        for message in read_to_end(rig.settings, rig.topic(topic), partition):
            yield message if kind is None else decode(message.value, kind)


def wait(rig: Rig, learner=None, timeout_s=180.0, **expected):
    """Wait until the learner's metrics say so; tell what they say if they do not."""

    def reached():
        values = rig.metrics_of("learner")
        return all(values.get(name) == n for name, n in expected.items())

    wait_until(
        rig, reached, lambda: f"{expected}; {rig.metrics_of('learner')}", learner,
        timeout_s,
    )  # fmt: skip


def wait_until(rig: Rig, ready, what, learner=None, timeout_s=180.0):
    deadline = time.monotonic() + timeout_s
    while not ready():
        if learner is not None and learner.poll() is not None:
            raise AssertionError(f"the learner ended: {learner.poll()}")
        text = what() if callable(what) else what
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {text}"
        time.sleep(0.2)


class PipelineRig(Rig):
    """The learner's rig, which tells roles' metrics and events apart."""

    def metrics_of(self, role):
        points = [p for p in self.points() if p.role == role]
        return dict(points[-1].values) if points else {}

    def metrics(self, incarnation=None):
        return self.metrics_of("learner")

    def alerts(self, kind):
        found = self.records(EVENTS, Event)
        return [e for e in found if (e.severity, e.kind) == ("alert", kind)]

    def letters(self, topic):
        return list(records(self, topic, DeadLetter))

    def delete_before(self, topic, offset, partition=0):
        """Let the log's start pass: what retention does when its time has come."""
        where = {(self.topic(topic), partition): offset}
        admin = make_admin(self.settings)  # kept until the answer is here
        for future in delete_before(admin, where, 60.0).values():
            future.result(60)
