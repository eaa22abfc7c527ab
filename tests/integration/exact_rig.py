"""Recorded experience for each algorithm, and what runs in a learner that is killed.

One partition, one worker, all of it in the log before a learner starts: what is learnt
then depends on the log alone, if the learner is deterministic.
"""

import numpy as np

from learner.algorithms import ALGORITHMS
from schemas.experiment import from_values
from schemas.records import EnvDescription, PolicyRef, SpaceField
from schemas.tensors import pack
from tests.integration.learner_rig import ENV

STEPS, ENVS, HIDDEN = 8, 8, 12

PENDULUM = EnvDescription(
    "Pendulum-v1",
    (SpaceField("", "box", "<f4", (3,), pack(np.full(3, -8, "<f4")),
                pack(np.full(3, 8, "<f4"))),),
    (SpaceField("", "box", "<f4", (1,), pack(np.full(1, -2, "<f4")),
                pack(np.full(1, 2, "<f4"))),),
    200,
    "sync",
    {"gymnasium": "1.4.0"},
)  # fmt: skip

_ON_POLICY = {"batchSize": 100, "maxPolicyLag": 1_000_000}  # of two unrolls
LEARNERS = {
    "dqn": {"batchSize": 32},
    "sac": {"batchSize": 32},
    "impala": _ON_POLICY,
    "ppo": {**_ON_POLICY, "ppo": {"epochs": 2, "minibatchSize": 64}},
    "r2d2": {
        "batchSize": 64,
        "network": {"hidden": [16], "lstm": HIDDEN},
        "r2d2": {"burnIn": 2, "sequenceLength": 6},
    },
}
"""What each algorithm's spec says of its own."""

assert set(LEARNERS) >= set(ALGORITHMS), "an algorithm that is not tested here"


def experiment(name, algorithm):
    """A small one that learns the same from the same log."""
    n_step = 1 if algorithm in ("impala", "ppo") else 3
    learner = {
        "algorithm": algorithm,
        "deterministic": True,
        "network": {"hidden": [16]},
        "checkpointIntervalS": 3600,  # the rig says when
        **LEARNERS[algorithm],
    }
    if algorithm not in ("impala", "ppo"):
        learner["replay"] = {"capacity": 2048, "minSize": 256}
    env = PENDULUM if algorithm == "sac" else ENV
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": name},
            "spec": {
                "env": {"id": env.env_id},
                "workers": {
                    "replicas": 1, "envsPerWorker": ENVS, "unrollLength": STEPS,
                },
                "processor": {"nStep": n_step},
                "learner": learner,
                "topics": {"partitions": 1},
            },
        }
    )  # fmt: skip


def env_of(algorithm):
    return PENDULUM if algorithm == "sac" else ENV


def changes(algorithm, sequence):
    """What a batch of this algorithm's worker has that DQN's has not."""
    rng = np.random.default_rng([sequence, 77])
    rows, one_more = (STEPS, ENVS), (STEPS + 1, ENVS)
    found = {"num_steps": STEPS, "num_envs": ENVS, "produced_at_ms": 1_000 + sequence}
    if algorithm == "sac":
        observations = rng.normal(size=(*one_more, 3)).astype("<f4")
        actions = rng.uniform(-2, 2, (*rows, 1)).astype("<f4")
        found |= {
            "observations": {"": pack(observations)},
            "actions": {"": pack(actions)},
        }
    if algorithm in ("impala", "ppo"):
        value = rng.normal(size=one_more).astype("<f4")
        log_prob = np.log(rng.uniform(0.3, 0.7, rows)).astype("<f4")
        found |= {
            "policy": PolicyRef(0, 0),
            "n_step": 1,
            "behaviour": {"value": pack(value), "log_prob": pack(log_prob)},
            "returns": pack(rng.normal(size=rows).astype("<f4")),
            "discounts": pack(np.full(rows, 0.99, "<f4")),
            "bootstrap_steps": pack(_bootstrap()),
        }
    if algorithm == "r2d2":
        state = rng.normal(size=(ENVS, HIDDEN)).astype("<f4")
        found |= {"states": {"h": pack(state), "c": pack(state[::-1].copy())}}
    return found


def _bootstrap():
    """One step ahead everywhere but in the one row that is not valid."""
    steps = np.ones((STEPS, ENVS), "<i4")
    steps[0, 0] = 0
    return steps


PRELUDE = """
import os, signal, time
from pathlib import Path
from learner import checkpoint, loop
from learner.background_export import BackgroundExport
from learner.feed import Feed
from learner.loop import Learner
from learner.snapshot import to_files

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def die_at_call(owner, name, number, first=lambda *args: None):
    whole, calls = getattr(owner, name), []
    def counted(*args, **kwargs):
        calls.append(1)
        if len(calls) == number:
            first(*args)
            die()
        return whole(*args, **kwargs)
    setattr(owner, name, counted)

def half(path, data):
    path.write_bytes(data[: len(data) // 2])

# Nobody acts with what is learnt here, and the export takes long.
BackgroundExport.start = lambda self: None

update = Learner._update
def watched(self, *args):
    before = self._p.algorithm.updates
    update(self, *args)
    updates = self._p.algorithm.updates
    if SAVE_EVERY and before // SAVE_EVERY < updates // SAVE_EVERY:
        self._p.saver.wait(60)
        self._p.saver.submit(self.snapshot())
        self._p.saver.wait(60)
    if updates >= LAST:
        for name, data in to_files(self.snapshot()).items():
            Path(DUMP, name).write_bytes(data)
        die()
Learner._update = watched
"""
"""Saves after so many updates, and writes all there is to a directory after the last.

It dies then as well: nothing that a process does at its end takes part.
"""
