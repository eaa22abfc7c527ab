"""RLlib's IMPALA on CartPole for some seconds; runs in the peer's virtual environment.

``python peer_rllib.py JOB RESULT``: both JSON files. It imports nothing of ours.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray.rllib.algorithms.impala import IMPALAConfig


def learn(job: dict[str, Any]) -> dict[str, Any]:
    """Learn for so many seconds and return the figures of the second half."""
    ray.init(
        num_cpus=job["workers"] + 1,
        logging_level="error",
        log_to_driver=False,
        include_dashboard=False,
    )
    config = (
        IMPALAConfig()
        .environment(job["env_id"])
        .env_runners(
            num_env_runners=job["workers"],
            num_envs_per_env_runner=job["envs"],
            rollout_fragment_length=job["unroll"],
        )
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=job["batch"], lr=job["learning_rate"])
        .rl_module(model_config={"fcnet_hiddens": job["hidden"]})
        .reporting(min_time_s_per_iteration=1)
        .debugging(seed=job["seed"])
    )
    algorithm = config.build_algo()
    began_s = time.monotonic()
    told: list[tuple[float, int, int]] = []
    result: dict[str, Any] = {}
    while time.monotonic() - began_s < job["seconds"]:
        result = algorithm.train()
        told.append((time.monotonic() - began_s, *counts_of(result)))
        print(f"env steps {told[-1][1]:,}", file=sys.stderr, flush=True)
    algorithm.stop()
    ray.shutdown()
    half = told[len(told) // 2 :]
    seconds = max(half[-1][0] - half[0][0], 1e-9)
    return {
        "steps_per_s": round((half[-1][1] - half[0][1]) / seconds, 1),
        "env_steps": told[-1][1],
        "wall_s": told[-1][0],
        "extra": {
            "trained_per_s": round((half[-1][2] - half[0][2]) / seconds, 1),
            "training_return": result["env_runners"].get("episode_return_mean", 0.0),
        },
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("ray", "torch", "gymnasium", "numpy")
        },
    }


def counts_of(result: dict[str, Any]) -> tuple[int, int]:
    """Return env steps that were sampled, and that were learnt from."""
    sampled = result["env_runners"].get("num_env_steps_sampled_lifetime", 0)
    learners = result.get("learners", {}).get("__all_modules__", {})
    return int(sampled), int(learners.get("num_env_steps_trained_lifetime", 0))


if __name__ == "__main__":
    found = learn(json.loads(Path(sys.argv[1]).read_text()))
    Path(sys.argv[2]).write_text(json.dumps(found))
