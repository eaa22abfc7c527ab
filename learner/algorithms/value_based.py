"""What DQN and R2D2 have in common: networks, optimiser, target copies, the actor."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from learner.algorithms.base import (
    Actor,
    AlgorithmState,
    UpdateResult,
    prefixed,
    restore_tensors,
    without_prefix,
)
from learner.algorithms.training import (
    choose_device,
    learning_rate,
    seeded,
    tensor_copies,
)
from learner.networks import QNetwork, discrete_action
from learner.optimiser import FlatAdam, flatten_parameters
from schemas.algorithm_specs import DistributionSpec
from schemas.experiment import Spec
from schemas.records import EnvDescription
from schemas.sizes import stacked
from schemas.tensors import Array


class ValueBased:
    """The value of each action, and a target network that follows: all but the loss."""

    def __init__(self, env: EnvDescription, spec: Spec) -> None:
        """Make the networks, from the spec's seed.

        Raises:
            UnsupportedSpace: the actions are not one Discrete, or the observations
                have no place in the network.
        """
        self._spec = spec
        learner = spec.learner
        self._action = discrete_action(env, learner.algorithm)
        frames = spec.env.frame_stack
        self._observation = tuple(stacked(f, frames) for f in env.observation)
        self._device = choose_device(learner.device)
        self._network = self._make_network()
        self._target = self._make_network()
        self._optimiser = FlatAdam(
            self._network,
            learning_rate=learner.learning_rate,
            epsilon=learner.adam_epsilon,
            max_grad_norm=learner.max_grad_norm,
        )
        self._target_parameters = flatten_parameters(self._target)
        self._target.requires_grad_(False)
        self.rng = np.random.default_rng(spec.seed)
        self.updates = 0

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

    def policy_tensors(self) -> dict[str, Array]:
        """Return copies of the actor's parameters and buffers by name."""
        return tensor_copies(self._network)

    def state_dict(self) -> AlgorithmState:
        """Return copies of everything that must survive."""
        return AlgorithmState(
            tensors=prefixed("network/", self._network.state_dict())
            | prefixed("target/", self._target.state_dict())
            | prefixed("optimiser/", self._optimiser.state_dict()),
            values={"updates": self.updates, "rng": self.rng.bit_generator.state},
        )

    def load_state_dict(self, state: AlgorithmState) -> None:
        """Go on from a state; raises ValueError when it is of another network."""
        restore_tensors(self._network, without_prefix("network/", state.tensors))
        restore_tensors(self._target, without_prefix("target/", state.tensors))
        self._optimiser.load_state_dict(without_prefix("optimiser/", state.tensors))
        self.updates = int(state.values["updates"])
        self.rng.bit_generator.state = state.values["rng"]


def _atoms(spec: DistributionSpec) -> tuple[int, tuple[float, float] | None]:
    """How many numbers say a return, and the ends of their support."""
    if spec.kind == "categorical":
        return spec.atoms, (spec.v_min, spec.v_max)
    return (1 if spec.kind == "none" else spec.atoms), None
