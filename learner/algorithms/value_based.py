"""What DQN and R2D2 have in common: networks, optimiser, target copies, the actor."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from learner.algorithms.base import (
    Actor,
    UpdateResult,
)
from learner.algorithms.trained import Trained
from learner.algorithms.training import (
    learning_rate,
    seeded,
)
from learner.networks import QNetwork, discrete_action
from learner.optimiser import flatten_parameters
from schemas.algorithm_specs import DistributionSpec
from schemas.experiment import Spec
from schemas.records import EnvDescription
from schemas.tensors import Array


class ValueBased(Trained):
    """The value of each action, and a target network that follows: all but the loss."""

    def __init__(self, env: EnvDescription, spec: Spec) -> None:
        """Make the networks, from the spec's seed.

        Raises:
            UnsupportedSpace: the actions are not one Discrete, or the observations
                have no place in the network.
        """
        super().__init__(env, spec)
        self._action = discrete_action(env, spec.learner.algorithm)
        self._network = self._make_network()
        self._target = self._make_network()
        self._optimiser = self._adam(self._network, spec.learner.learning_rate)
        self._target_parameters = flatten_parameters(self._target)
        self._target.requires_grad_(False)
        self._modules = {"network": self._network, "target": self._target}
        self._optimisers = {"optimiser": self._optimiser}

    def _make_network(self) -> QNetwork:
        learner = self._spec.learner
        atoms, support = _atoms(learner.distribution)
        with seeded(self._spec.seed):  # twice from the seed: the same
            network = QNetwork(
                self._observation, self._action.n[0], learner.network, atoms, support
            )
        return network.to(self._device)

    def _descend(self, loss: Tensor, td_errors: Tensor) -> UpdateResult:
        """Take one step, and say so; leaves all as it was when not finite."""
        learner = self._spec.learner
        value, norm = float(loss.detach()), float("nan")
        if np.isfinite(value):
            self._optimiser.learning_rate = learning_rate(learner, self.updates)
            norm = self._optimiser.step(loss)
        finite = bool(np.isfinite(norm))
        if finite:
            self.updates += 1
            if self.updates % learner.target_update_period == 0:
                self._target_parameters.copy_(self._optimiser.parameters)
        return UpdateResult(td_errors.detach().cpu().numpy(), value, norm, finite)

    def _indices(self, actions: Array) -> Tensor:
        """Return which of the network's values each action has."""
        first = self._action.start[0] if self._action.start else 0
        return self._tensor(actions).to(torch.int64) - first

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def actor(self) -> Actor:
        """Return the q network, its state, and the Ape-X ladder of random actions."""
        exploration = self._spec.workers.exploration
        return Actor(
            module=self._network,
            head="q",
            exploration="epsilon_ladder",
            exploration_options={
                "epsilon": exploration.epsilon,
                "alpha": exploration.alpha,
            },
            observation=self._observation,
            action=(self._action,),
            states=self._network.states,
        )


def _atoms(spec: DistributionSpec) -> tuple[int, tuple[float, float] | None]:
    """How many numbers say a return, and the ends of their support."""
    if spec.kind == "categorical":
        return spec.atoms, (spec.v_min, spec.v_max)
    return (1 if spec.kind == "none" else spec.atoms), None
