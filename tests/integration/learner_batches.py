"""Experiments of a learner, and batches as a processor would write them for it.

The batches have CartPole's shapes; their observations carry who, when and where.
"""

import secrets
import time

import numpy as np

from schemas.experiment import from_values
from schemas.records import (
    NO_POLICY,
    EnvDescription,
    SourceRef,
    SpaceField,
    TransitionBatch,
)
from schemas.tensors import pack
from schemas.topics import TRAJECTORIES, topic_name, worker_index

ENV = EnvDescription(
    "CartPole-v1",
    (SpaceField("", "box", "<f4", (4,), pack(np.full(4, -9, "<f4")),
                pack(np.full(4, 9, "<f4"))),),
    (SpaceField("", "discrete", "<i8", (), n=(2,), start=(0,)),),
    500,
    "sync",
    {"gymnasium": "1.4.0"},
)  # fmt: skip


def experiment(name=None, **learner):
    """Small and quick: partitions 2, 2 workers of 8 environments, T = 8, n = 3."""
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": name or f"learner-{secrets.token_hex(4)}"},
            "spec": {
                "env": {"id": "CartPole-v1"},
                "workers": {"replicas": 2, "envsPerWorker": 8, "unrollLength": 8},
                "processor": {"nStep": 3},
                "learner": {
                    "network": {"hidden": [16]},
                    "replay": {"capacity": 8192, "minSize": 128},
                    "batchSize": 32,
                    "samplesPerInsert": 1,
                    "checkpointIntervalS": 0.3,
                }
                | learner,
                "topics": {"partitions": 2},
            },
        }
    )


def make_batch(name, run_id, worker, incarnation, sequence, steps=8, envs=8, **changes):
    """A batch as a processor writes it, n = 3, no episode ends; one row not valid."""
    rng = np.random.default_rng([worker_index(worker), incarnation, sequence])
    rows = (steps, envs)
    valid = np.ones(rows, bool)
    valid[0, 0] = False
    observations = rng.normal(size=(steps + 1, envs, 4)).astype("<f4")
    values = {
        "experiment": name,
        "run_id": run_id,
        "worker": worker,
        "incarnation": incarnation,
        "sequence": sequence,
        "first_step": sequence * steps,
        "num_steps": steps,
        "num_envs": envs,
        "policy": NO_POLICY,
        "produced_at_ms": time.time_ns() // 1_000_000,
        "end_of_stream": False,
        "source": SourceRef(topic_name(TRAJECTORIES, name), 0, sequence),
        "n_step": 3,
        "gamma": 0.99,
        "reward_scale": 0.1,
        "observations": {"": pack(observations)},
        "actions": {"": pack(rng.integers(0, 2, rows))},
        "rewards": pack(np.ones(rows, "<f4")),
        "terminated": pack(np.zeros(rows, bool)),
        "truncated": pack(np.zeros(rows, bool)),
        "valid": pack(valid),
        "episodes": pack(np.zeros(envs, "<i8")),
        "states": {},
        "behaviour": {},
        "infos": {},
        "returns": pack(np.full(rows, 0.297, "<f4")),
        "discounts": pack(np.full(rows, 0.97, "<f4")),
        "bootstrap_steps": pack(np.where(valid, 3, 0).astype("<i4")),
        "priorities": pack(np.full(rows, np.nan, "<f4")),
    }
    return TransitionBatch(**{**values, **changes})
