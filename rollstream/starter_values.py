"""An algorithm -> the values that an experiment with it starts from."""

from __future__ import annotations

from typing import Any

from schemas.actions import action_problem
from schemas.algorithms import BUILT_IN
from schemas.records import EnvDescription

_USUAL = ("dqn", "sac", "ppo")
"""The first that can act in an environment is proposed."""


def usual_algorithm(env: EnvDescription) -> str:
    """Return the algorithm to begin with; the first where none can act."""
    for name in _USUAL:
        if action_problem(env, name, BUILT_IN[name].actions) is None:
            return name
    return _USUAL[0]


def role_values(algorithm: str, envs: int, rows: int) -> dict[str, Any]:
    """Return workers, processor and learner, as a file says them.

    Args:
        algorithm: a built-in one.
        envs: environments of a worker, at most.
        rows: of the replay buffer.
    """
    make = {"sac": _sac, "r2d2": _r2d2, "ppo": _on_policy, "impala": _on_policy}
    workers, processor, learner = make.get(algorithm, _dqn)(envs, rows)
    return {
        "workers": {"replicas": 2, "# min": 1, "# max": 8, **workers},
        "processor": {"replicas": 1, "gamma": 0.99, "rewardScale": 1, **processor},
        "learner": {
            "algorithm": algorithm,
            **learner,
            "# nodeSelector": {"zone": "a"},
        },
    }


_Values = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def _dqn(envs: int, rows: int) -> _Values:
    learner = {
        "network": {"hidden": [128, 128], "# observationScale": [0.5]},
        "replay": {"capacity": rows, "minSize": 2_000},
        "samplesPerInsert": 1,
        "batchSize": 128,
        "learningRate": 1e-3,
    }
    return {"envsPerWorker": envs, "unrollLength": 32}, {"nStep": 3}, learner


def _r2d2(envs: int, rows: int) -> _Values:
    learner = {
        "network": {"hidden": [128], "lstm": 128, "# observationScale": [0.5]},
        "r2d2": {"burnIn": 10, "sequenceLength": 30},
        "replay": {"capacity": rows, "minSize": 2_000},
        "samplesPerInsert": 2,
        "batchSize": 960,
        "learningRate": 1e-3,
    }
    return {"envsPerWorker": envs, "unrollLength": 20}, {"nStep": 3}, learner


def _sac(envs: int, rows: int) -> _Values:
    learner = {
        "network": {"hidden": [256, 256], "# observationScale": [0.5]},
        "replay": {"capacity": rows, "minSize": 1_000, "alpha": 0},
        "samplesPerInsert": 256,  # one update a step, as the paper's
        "batchSize": 256,
        "learningRate": 1e-3,
    }
    workers = {"envsPerWorker": min(envs, 4), "unrollLength": 8}
    return {"replicas": 1, **workers}, {"nStep": 1}, learner


def _on_policy(envs: int, rows: int) -> _Values:
    learner = {
        "network": {
            "hidden": [64, 64], "activation": "tanh", "# observationScale": [0.5],
        },
        "policyGradient": {"entropyCost": 0.01},
        # A bit under an unroll of each worker: the reset of an episode is no row.
        "batchSize": max(1, 2 * 32 * envs * 7 // 8),
        "learningRate": 1e-3,
        "maxGradNorm": 0.5,
    }  # fmt: skip
    return {"envsPerWorker": envs, "unrollLength": 32}, {"nStep": 1}, learner
