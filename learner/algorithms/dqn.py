"""Double DQN with n-step returns, prioritised replay and a hard target network.

    yₜ = Rₜ + Γₜ Q'(sₜ₊ₘ, argmaxₐ Q(sₜ₊ₘ, a)),   loss = mean wₜ huber(Q(sₜ, aₜ) - yₜ)

R and Γ are the record's ``returns`` and ``discounts``. https://arxiv.org/abs/1509.06461

With a distribution of returns, Q is its mean, and the target is the distribution of
Rₜ + Γₜ Z'(sₜ₊ₘ, a) for the same action a: see `learner.algorithms.distributions`.
"""

from collections.abc import Mapping

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
from learner.algorithms.distributions import (
    ErrorFunction,
    Errors,
    categorical_errors,
    mean_errors,
    quantile_errors,
)
from learner.algorithms.training import (
    as_tensors,
    choose_device,
    learning_rate,
    seeded,
    tensor_copies,
)
from learner.networks import QNetwork, discrete_action
from learner.optimiser import FlatAdam, flatten_parameters
from learner.sample import Sample
from schemas.algorithm_specs import DistributionSpec
from schemas.algorithms import LearnsFrom
from schemas.experiment import Spec
from schemas.records import EnvDescription
from schemas.sizes import stacked
from schemas.tensors import Array


class Dqn:
    """The algorithm ``dqn``: see `learner.algorithms.base.Algorithm`."""

    learns_from: LearnsFrom = "transitions"
    sequence_length = 1

    def __init__(self, env: EnvDescription, spec: Spec) -> None:
        """Make the networks, from the spec's seed.

        Raises:
            UnsupportedSpace: the actions are not one Discrete, or the observations
                have no place in the network.
        """
        self._spec = spec
        learner = spec.learner
        self._action = discrete_action(env, "dqn")
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
        self._errors = _error_function(learner.distribution.kind, self._network.support)
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

    def update(self, sample: Sample) -> UpdateResult:
        """Learn from one sample; leaves everything as it was when not finite."""
        errors = self._find_errors(sample)
        loss = (self._tensor(sample.weights) * errors.losses).mean()
        value, norm = float(loss.detach()), float("nan")
        if np.isfinite(value):
            rate = learning_rate(self._spec.learner, self.updates)
            self._optimiser.learning_rate = rate
            norm = self._optimiser.step(loss)
        finite = bool(np.isfinite(norm))
        if finite:
            self.updates += 1
            if self.updates % self._spec.learner.target_update_period == 0:
                self._target_parameters.copy_(self._optimiser.parameters)
        td_errors = errors.td_errors.detach().cpu().numpy()
        return UpdateResult(td_errors, value, norm, finite)

    def _find_errors(self, sample: Sample) -> Errors:
        """Compare Z(s, a) with R + Γ Z'(s', a*), whatever Z says of the return."""
        with torch.no_grad():
            after = self._tensors(sample.bootstrap_observations)
            target = _values(self._target, after)
            chooser = _values(self._network, after) if self._double else target
            best = self._network.means(chooser).argmax(1)
        values = _values(self._network, self._tensors(sample.observations))
        actions = self._tensor(sample.actions[self._action.name]).to(torch.int64)
        chosen = actions - (self._action.start or (0,))[0]
        return self._errors(
            _of(values, chosen),
            _of(target, best),
            self._tensor(sample.returns),
            self._tensor(sample.discounts),
        )

    @property
    def _double(self) -> bool:
        return self._spec.learner.double

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _tensors(self, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
        return as_tensors(arrays, self._device)

    def actor(self) -> Actor:
        """Return the q network and the Ape-X ladder of random actions."""
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


def _error_function(kind: str, support: Tensor | None) -> ErrorFunction:
    if support is not None:
        return categorical_errors(support)
    return mean_errors if kind == "none" else quantile_errors


def _values(network: QNetwork, observations: Mapping[str, Tensor]) -> Tensor:
    """What a network says of each action's return: [N, actions, atoms]."""
    features, _ = network.torso(observations)
    return network.values(features)


def _of(values: Tensor, actions: Tensor) -> Tensor:
    """Those of one action a row: [N, atoms] of [N, actions, atoms]."""
    return values[torch.arange(len(actions), device=values.device), actions]
