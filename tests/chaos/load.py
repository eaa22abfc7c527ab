"""What the roles work on: an experiment of counting environments, small and bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.experiment import Experiment, from_values
from tests.chaos.counting_env import ENV_ID

# Some 1,000 steps a second: two cores stay usable for what is tested.
SPEC: dict[str, Any] = {
    "env": {"id": ENV_ID},
    "workers": {
        "replicas": 4,
        "envsPerWorker": 4,
        "unrollLength": 8,
        "maxEnvStepsPerS": 250,
    },
    "processor": {"replicas": 2, "nStep": 3, "gamma": 0.9, "rewardScale": 0.5},
    "learner": {
        # Not the nonce: it is a large number, and says nothing.
        "network": {"hidden": [16], "observationScale": [0.1, 0, 0.1, 0, 0.04]},
        "replay": {"capacity": 65_536, "minSize": 256},
        "batchSize": 32,
        "samplesPerInsert": 0.5,
        "checkpointIntervalS": 1.0,
    },
    "evaluator": {"replicas": 0},
    "topics": {"partitions": 6},
}


def make_experiment(name: str, spec: Mapping[str, Any] | None = None) -> Experiment:
    """Return the experiment of a name, with other values in SPEC's places."""
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": name},
            "spec": merged(SPEC, spec or {}),
        }
    )


def merged(spec: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with the values of another in their places, section by section."""
    result = dict(spec)
    for key, value in more.items():
        old = result.get(key)
        nested = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if nested else value
    return result
