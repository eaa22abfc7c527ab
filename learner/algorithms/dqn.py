"""Double DQN with n-step returns, prioritised replay and a hard target network.

    yₜ = Rₜ + Γₜ Q'(sₜ₊ₘ, argmaxₐ Q(sₜ₊ₘ, a)),   loss = mean wₜ huber(Q(sₜ, aₜ) - yₜ)

R and Γ are the record's ``returns`` and ``discounts``. https://arxiv.org/abs/1509.06461

With a distribution of returns, Q is its mean, and the target is the distribution of
Rₜ + Γₜ Z'(sₜ₊ₘ, a) for the same action a: see `learner.algorithms.distributions`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from learner.algorithms.base import UpdateResult
from learner.algorithms.distributions import (
    ErrorFunction,
    Errors,
    categorical_errors,
    mean_errors,
    quantile_errors,
)
from learner.algorithms.training import as_tensors
from learner.algorithms.value_based import ValueBased
from learner.networks import QNetwork
from learner.sample import Sample
from schemas.algorithms import LearnsFrom
from schemas.experiment import Spec
from schemas.records import EnvDescription


class Dqn(ValueBased):
    """The algorithm ``dqn``: see `learner.algorithms.base.Algorithm`."""

    learns_from: LearnsFrom = "transitions"
    sequence_length = 1

    def __init__(self, env: EnvDescription, spec: Spec) -> None:
        """Make the networks; raises UnsupportedSpace as ValueBased does."""
        super().__init__(env, spec)
        kind = spec.learner.distribution.kind
        self._errors = _error_function(kind, self._network.support)

    def update(self, sample: Sample) -> UpdateResult:
        """Learn from one sample; leaves everything as it was when not finite."""
        errors = self._find_errors(sample)
        loss = (self._tensor(sample.weights) * errors.losses).mean()
        return self._descend(loss, errors.td_errors)

    def _find_errors(self, sample: Sample) -> Errors:
        """Compare Z(s, a) with R + Γ Z'(s', a*), whatever Z says of the return."""
        with torch.no_grad():
            after = as_tensors(sample.bootstrap_observations, self._device)
            target = _values(self._target, after)
            double = self._spec.learner.double
            chooser = _values(self._network, after) if double else target
            best = self._network.means(chooser).argmax(1)
        before = as_tensors(sample.observations, self._device)
        values = _values(self._network, before)
        return self._errors(
            _of(values, self._indices(sample.actions[self._action.name])),
            _of(target, best),
            self._tensor(sample.returns),
            self._tensor(sample.discounts),
        )


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
