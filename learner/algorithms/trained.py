"""What all built-in algorithms have: where they compute, and what is kept of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from torch import Tensor, nn

from learner.algorithms.base import (
    Actor,
    AlgorithmState,
    prefixed,
    restore_tensors,
    without_prefix,
)
from learner.algorithms.training import choose_device, tensor_copies
from learner.optimiser import FlatAdam
from schemas.experiment import Spec
from schemas.records import EnvDescription
from schemas.sizes import stacked
from schemas.tensors import Array


class Trained(ABC):
    """The state of an algorithm: networks, optimisers, a counter and a generator.

    Who derives from it puts into ``_modules`` and ``_optimisers`` what a checkpoint is
    to keep; the names are those of its tensors, before a slash.
    """

    def __init__(self, env: EnvDescription, spec: Spec) -> None:
        self._spec = spec
        frames = spec.env.frame_stack
        self._observation = tuple(stacked(f, frames) for f in env.observation)
        self._device = choose_device(spec.learner.device)
        self._modules: dict[str, nn.Module] = {}
        self._optimisers: dict[str, FlatAdam] = {}
        self.rng = np.random.default_rng(spec.seed)
        self.updates = 0

    def _adam(self, module: nn.Module, learning_rate: float) -> FlatAdam:
        learner = self._spec.learner
        return FlatAdam(
            module,
            learning_rate=learning_rate,
            epsilon=learner.adam_epsilon,
            max_grad_norm=learner.max_grad_norm,
        )

    @abstractmethod
    def actor(self) -> Actor:
        """Return the module that acts: the live one, not a copy."""

    def policy_tensors(self) -> dict[str, Array]:
        """Return copies of the actor's parameters and buffers by name."""
        return tensor_copies(self.actor().module)

    def state_dict(self) -> AlgorithmState:
        """Return copies of everything that must survive."""
        tensors: dict[str, Tensor] = {}
        for name, part in (self._modules | self._optimisers).items():
            tensors |= prefixed(f"{name}/", part.state_dict())
        values = {"updates": self.updates, "rng": self.rng.bit_generator.state}
        return AlgorithmState(tensors, values)

    def load_state_dict(self, state: AlgorithmState) -> None:
        """Go on from a state; raises ValueError when it is of another network."""
        for name, module in self._modules.items():
            restore_tensors(module, without_prefix(f"{name}/", state.tensors))
        for name, optimiser in self._optimisers.items():
            optimiser.load_state_dict(without_prefix(f"{name}/", state.tensors))
        self.updates = int(state.values["updates"])
        self.rng.bit_generator.state = state.values["rng"]
