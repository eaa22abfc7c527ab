"""Workers, a processor and a learner of PPO on a real broker, round after round."""

import io
import json
import secrets
import signal
from contextlib import ExitStack

import numpy as np
import pytest

from schemas.codec import decode
from schemas.experiment import from_values
from schemas.records import TransitionBatch
from schemas.topics import REPLAY
from tests.integration.pipeline_rig import PipelineRig, processor, records, worker

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.slow]

ENVS, STEPS = 4, 8
NOTE_LEARNT = """
import json
import os
from learner import actor_graph, loop, trim, unroll_queue
loop.METRICS_S = 0.2
trim.Trimmer.trim = lambda *args: None  # all of the log is read in the end
join, update, taken = unroll_queue.side_by_side, loop.Learner._update, []

def joined(unrolls, stack):
    taken.extend(unrolls)
    return join(unrolls, stack)

def updated(self, batch_size):
    taken.clear()
    now = self._intake.clock.now
    update(self, batch_size)
    refs = [
        (u.past.ref.worker, u.past.ref.incarnation, u.past.ref.sequence, u.num_usable,
         now - u.version)
        for u in taken
    ]
    with open(JOURNAL, "a") as out:
        out.write(json.dumps([self._p.algorithm.updates, refs]) + "\\n")

unroll_queue.side_by_side, loop.Learner._update = joined, updated
export = actor_graph.export_actor

def exported(actor):
    # It takes seconds, and is the same each time.
    if os.path.exists(GRAPH):
        with open(GRAPH, "rb") as kept:
            onnx = kept.read()
        sha256 = os.path.basename(os.readlink(GRAPH))
        return actor_graph.ExportedGraph(onnx, sha256, actor, 0.0)
    made = export(actor)
    path = os.path.join(os.path.dirname(GRAPH), made.sha256)
    with open(path, "wb") as out:
        out.write(made.onnx)
    os.symlink(path, GRAPH)
    return made

actor_graph.export_actor = exported
"""


def experiment(lag):
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": f"on-policy-{secrets.token_hex(4)}"},
            "spec": {
                "env": {"id": "CartPole-v1"},
                "workers": {
                    "replicas": 2, "envsPerWorker": ENVS, "unrollLength": STEPS,
                },
                "processor": {"nStep": 1},
                "learner": {
                    "algorithm": "ppo",
                    "maxPolicyLag": lag,
                    "batchSize": 50,
                    "network": {"hidden": [16]},
                    "ppo": {"epochs": 2, "minibatchSize": 32},
                    "checkpointIntervalS": 0.5,
                },
                "topics": {"partitions": 2},
            },
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """Where the first learner of all leaves its actor's graph for the others."""
    return tmp_path_factory.mktemp("exported") / "graph"


def journal(path):
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("lag", [0, 1])
def test_rounds_go_on_and_each_row_is_learnt_from_once_or_stale(
    settings, tmp_path, graph, lag
):
    """A learner is killed in the middle; the next goes on from its checkpoint."""
    rig = PipelineRig(settings, experiment(lag))
    path = tmp_path / "learnt"
    prelude = f"JOURNAL, GRAPH = {str(path)!r}, {str(graph)!r}\n{NOTE_LEARNT}"
    try:
        with ExitStack() as started:
            started.enter_context(processor(rig))
            for index in range(2):
                started.enter_context(worker(rig, index))
            first = rig.start_learner(prelude)
            rig.wait_for(lambda: updates(path) >= 15, learner=first)
            rig.wait_for(lambda: rig.checkpoints.newest()[0], learner=first)
            rig.wait_for(lambda: has_learnt(rig), learner=first)
            first.send_signal(signal.SIGKILL)
            first.wait(30)
            before = journal(path)
            path.unlink()
            second = rig.start_learner(prelude)
            rig.wait_for(lambda: updates(path) >= before[-1][0] + 15, learner=second)
            rig.wait_for(lambda: rig.metrics().get("resumed") == 1, learner=second)
            told = rig.metrics()
            assert rig.stop(second) == 0
        check(rig, before, journal(path), lag)
        for index in range(2):
            assert told[f"trained_rows/w{index}"] > 0
        assert 0 < told["samples_per_insert_run"] <= 1
        assert told["stale_steps"] >= 0 and "entropy" in told
    finally:
        rig.close()


def updates(path):
    lines = journal(path)
    return lines[-1][0] if lines else 0


def has_learnt(rig):
    """Whether a checkpoint holds updates: else the next learner begins anew."""
    return rig.checkpoint_state()["counters"]["samples"] > 0


def check(rig, before, after, lag):
    # What was learnt behind the checkpoint was forgotten, and is learnt again.
    kept = [line for line in before if line[0] < after[0][0]]
    assert len(kept) == after[0][0] - 1 > 0
    learnt = [tuple(ref) for _, refs in (*kept, *after) for ref in refs]
    keys = [ref[:3] for ref in learnt]
    assert len(keys) == len(set(keys)), "an unroll was learnt from twice"
    # Those of before were made by versions that the next has not come to yet.
    ahead = before[-1][0] - len(kept)
    assert {behind for *_, behind in learnt} <= set(range(-ahead - 1, lag + 1))

    state = rig.checkpoint_state()
    counters = state["counters"]
    assert counters["samples"] == sum(ref[3] for ref in learnt)
    stored, _ = rig.checkpoints.newest()
    waiting = np.isfinite(priorities(stored)).sum()
    dropped = state["dropped_rows"]
    assert counters["duplicate_steps"] == counters["unrestorable_rows"] == 0
    assert counters["dead_letters"] == 0
    assert counters["env_steps"] == (
        counters["samples"] + counters["stale_steps"] + dropped + waiting
    )
    assert counters["env_steps"] == rows_read(rig, state["positions"])
    # Of those made while nobody was there, and in the races of a start.
    assert counters["stale_steps"] < 0.5 * counters["env_steps"]
    versions = [policy.version for policy in rig.policies()]
    assert versions and max(versions) >= 15


def priorities(stored):
    return np.load(io.BytesIO(stored.files["priorities.npy"]))


def rows_read(rig, positions):
    """The valid rows of the log up to the positions of a checkpoint."""
    rows = 0
    for message in records(rig, REPLAY):
        if message.offset < positions[str(message.partition)]:
            batch = decode(message.value, TransitionBatch)
            rows += int(batch.valid.array().sum())
    return rows
