"""Samples made by hand or at random, and states that are compared."""

import json

import numpy as np
import safetensors.torch
import torch

from learner.algorithms.base import AlgorithmState
from learner.sample import Sample


def column(*values):
    return np.array(values, np.float32)


def random_sample(rng, action, width=4, count=8):
    """Of observations [width] and of one action field."""
    if action.kind == "discrete":
        actions = rng.integers(0, action.n[0], count)
    else:
        actions = rng.uniform(-1, 1, (count, *action.shape)).astype(np.float32)
    seen = [rng.standard_normal((count, width)).astype(np.float32) for _ in range(2)]
    return Sample(
        indices=np.arange(count),
        weights=rng.random(count).astype(np.float32),
        observations={"": seen[0]},
        actions={action.name: actions},
        returns=rng.standard_normal(count).astype(np.float32),
        discounts=rng.random(count).astype(np.float32),
        bootstrap_observations={"": seen[1]},
    )


def saved_and_read(state):
    """A state as a checkpoint brings it back."""
    tensors = safetensors.torch.load(safetensors.torch.save(dict(state.tensors)))
    return AlgorithmState(tensors, json.loads(json.dumps(state.values)))


def assert_same(first, second):
    assert first.values == second.values
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        assert torch.equal(tensor, second.tensors[name]), name
