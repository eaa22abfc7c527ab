"""Updates of a learner, without a log: what one costs, by network and batch.

On one thread, as `OMP_NUM_THREADS` of the process says.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.beside.scripts.job import do_job, found
from infra.planning.network_cost import gradient_steps, training_flops
from learner.algorithms import build
from learner.algorithms.base import Algorithm
from learner.sample import Sample
from schemas.experiment import Spec, from_values
from schemas.records import EnvDescription, SpaceField
from schemas.tensors import Array, pack

SECONDS, _WARM_UPS = 2.0, 5
INPUTS, DISCRETE, DIMENSIONS = 8, 4, 2


def environment(algorithm: str) -> EnvDescription:
    """Return what is learnt: 8 numbers, and 4 actions or a box of 2."""
    seen = SpaceField("", "box", "<f4", (INPUTS,))
    bounds = [pack(np.full(DIMENSIONS, bound, np.float32)) for bound in (-1, 1)]
    box = SpaceField("", "box", "<f4", (DIMENSIONS,), low=bounds[0], high=bounds[1])
    discrete = SpaceField("", "discrete", "<i8", (), n=(DISCRETE,), start=(0,))
    action = box if algorithm == "sac" else discrete
    return EnvDescription("Bench-v0", (seen,), (action,), None, "sync", {})


def spec(algorithm: str, hidden: int, batch_size: int) -> Spec:
    """Return a spec with two layers of so many units."""
    learner = {
        "algorithm": algorithm,
        "network": {"hidden": [hidden, hidden]},
        "batchSize": batch_size,
        "device": "cpu",
    }
    values = {
        "apiVersion": "rollstream/v1",
        "kind": "Experiment",
        "metadata": {"name": "bench"},
        "spec": {"env": {"id": "Bench-v0"}, "learner": learner},
    }
    return from_values(values).spec


def sample(algorithm: str, rows: int) -> Sample:
    """Return rows as a buffer would give them."""
    rng = np.random.default_rng(0)
    observations = {"": rng.random((rows, INPUTS), np.float32)}
    actions: Array = rng.integers(0, DISCRETE, rows)
    if algorithm == "sac":
        actions = rng.random((rows, DIMENSIONS), np.float32)
    ones = np.ones(rows, np.float32)
    return Sample(
        np.arange(rows), ones, observations, {"": actions}, ones, ones * 0.97,
        {"": rng.random((rows, INPUTS), np.float32)},
    )  # fmt: skip


def update_us(algorithm: Algorithm, rows: Sample, seconds: float) -> float:
    """Return how long an update takes, in CPU microseconds."""
    for _ in range(_WARM_UPS):
        algorithm.update(rows)
    began_s, cpu_s, count = time.monotonic(), time.process_time(), 0
    while time.monotonic() - began_s < seconds:
        algorithm.update(rows)
        count += 1
    return (time.process_time() - cpu_s) / count * 1e6


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Return the figures of a job: algorithm, hidden, batch_size, seconds."""
    algorithm, batch_size = job["algorithm"], job["batch_size"]
    env, wanted = environment(algorithm), spec(algorithm, job["hidden"], batch_size)
    made = build(env, wanted)
    took_us = update_us(made, sample(algorithm, batch_size), job["seconds"])
    (action,) = env.action
    return {
        "hidden": job["hidden"],
        "batch_size": batch_size,
        "training_flops": training_flops(wanted.learner, env.observation, action),
        "gradient_steps": gradient_steps(wanted.learner),
        "update_us": round(took_us, 1),
        "us_per_row": round(took_us / batch_size, 3),
    }


if __name__ == "__main__":
    do_job(lambda job: found(measure(job), "torch"))
