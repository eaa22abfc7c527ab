"""Soft actor-critic: two critics, a squashed Gaussian policy, a temperature learnt.

    y = R + Γ (minᵢ Q'ᵢ(s', a') - α log π(a'|s')),         a' ~ π(s')
    critics:      mean w ½ Σᵢ (Qᵢ(s, a) - y)²
    policy:       mean w (α log π(ã|s) - minᵢ Qᵢ(s, ã)),   ã ~ π(s)
    temperature:  mean w -log α (log π(ã|s) + target entropy)

R and Γ are the record's ``returns`` and ``discounts``, s' the observation that they
bootstrap from, w the importance weights. All three are of the parameters before the
update, so that an update that is not finite can be left out as a whole. Targets follow
by tau; priorities come from the mean of both critics' errors, each without its sign.
https://arxiv.org/abs/1812.05905
"""

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from learner.algorithms.base import (
    Actor,
    AlgorithmState,
    UpdateResult,
)
from learner.algorithms.squashed_gaussian import squashed_sample, to_unit_box
from learner.algorithms.trained import Trained
from learner.algorithms.training import (
    as_tensors,
    learning_rate,
    seeded,
)
from learner.networks import ActionValueNetwork, SquashedGaussianPolicy, box_action
from learner.optimiser import flatten_parameters
from learner.sample import Sample
from schemas.algorithms import LearnsFrom
from schemas.experiment import Spec
from schemas.records import EnvDescription
from schemas.sizes import flat_size


class TwinCritics(nn.Module):
    """Two action values of their own: [2, N]. Apart: as one batched they are no faster.

    (2 x 256 units and 256 rows: 3.9 ms there and back apart, 4.9 ms as one.)
    """

    def __init__(self, first: ActionValueNetwork, second: ActionValueNetwork) -> None:
        super().__init__()
        self.both = nn.ModuleList([first, second])

    def forward(self, observations: Mapping[str, Tensor], actions: Tensor) -> Tensor:
        """Return both values [2, N] of actions [N, D] in [-1, 1]."""
        return torch.stack([critic(observations, actions) for critic in self.both])


class Temperature(nn.Module):
    """α > 0, by its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(initial)]))


@dataclass(frozen=True, slots=True)
class _Batch:
    """A Sample as tensors, its actions [N, D] in [-1, 1]."""

    weights: Tensor
    observations: Mapping[str, Tensor]
    actions: Tensor
    returns: Tensor
    discounts: Tensor
    bootstrap_observations: Mapping[str, Tensor]


class Sac(Trained):
    """The algorithm ``sac``: see `learner.algorithms.base.Algorithm`."""

    learns_from: LearnsFrom = "transitions"
    sequence_length = 1

    def __init__(self, env: EnvDescription, spec: Spec) -> None:
        """Make the networks, from the spec's seed.

        Raises:
            UnsupportedSpace: the actions are not one Box with bounds, or the
                observations have no place in the network.
        """
        super().__init__(env, spec)
        self._sac = spec.learner.sac
        self._action = box_action(env, "sac")
        self._num_coordinates = flat_size(self._action)
        self._make_networks()
        self._modules = {
            "policy": self._policy,
            "critics": self._critics,
            "targets": self._targets,
            "temperature": self._temperature,
        }
        self._rates = {
            "critics": spec.learner.learning_rate,
            "policy": self._sac.actor_learning_rate,
            "temperature": self._sac.actor_learning_rate,
        }
        self._adams = {
            name: self._adam(self._modules[name], rate)
            for name, rate in self._rates.items()
        }
        self._optimisers = {f"optimiser/{n}": adam for n, adam in self._adams.items()}
        self._critic_parameters = list(self._critics.parameters())
        self._target_parameters = flatten_parameters(self._targets)
        self._targets.requires_grad_(False)
        self._noise = torch.Generator(self._device).manual_seed(spec.seed)

    def _make_networks(self) -> None:
        network = self._spec.learner.network
        with seeded(self._spec.seed):
            policy = SquashedGaussianPolicy(self._observation, self._action, network)
            critics = [
                ActionValueNetwork(self._observation, self._action, network)
                for _ in range(2)
            ]
        self._policy = policy.to(self._device)
        self._critics = TwinCritics(*critics).to(self._device)
        self._targets = copy.deepcopy(self._critics)
        temperature = Temperature(self._sac.initial_temperature)
        self._temperature = temperature.to(self._device)

    def update(self, sample: Sample) -> UpdateResult:
        """Learn from one sample; leaves everything as it was when not finite."""
        noise_before = self._noise.get_state()
        batch = self._batch(sample)
        td_errors, values = self._td_errors(batch)
        policy_values, log_probs = self._act(batch)
        weights, alpha = batch.weights, self._temperature.log.detach().exp()
        losses = {
            "critics": (weights * 0.5 * td_errors.square()).mean(1).sum(),
            "policy": (weights * (alpha * log_probs - policy_values)).mean(),
            "temperature": self._temperature_loss(weights, log_probs.detach()),
        }
        norms = self._gradients(losses)
        finite = all(np.isfinite(norm) for norm in norms)
        if finite:
            self._descend()
        else:
            self._noise.set_state(noise_before)
        return UpdateResult(
            td_errors.detach().abs().mean(0).cpu().numpy(),
            float(losses["critics"].detach()),
            max(norms[:2]),
            finite,
            figures={
                "entropy": -float(log_probs.detach().mean()),
                "temperature": float(alpha),
                "q_mean": float(values.detach().mean()),
                "policy_loss": float(losses["policy"].detach()),
            },
        )

    def _td_errors(self, batch: _Batch) -> tuple[Tensor, Tensor]:
        """Return Qᵢ(s, a) - y and Qᵢ(s, a), each [2, N]."""
        with torch.no_grad():
            after = batch.bootstrap_observations
            actions, log_probs = self._sample_actions(after)
            soft = self._targets(after, actions).amin(0)
            soft -= self._temperature.log.exp() * log_probs
            targets = batch.returns + batch.discounts * soft
        values: Tensor = self._critics(batch.observations, batch.actions)
        return values - targets, values

    def _act(self, batch: _Batch) -> tuple[Tensor, Tensor]:
        """Return minᵢ Qᵢ(s, ã) and log π(ã|s), each [N], of actions of the policy."""
        actions, log_probs = self._sample_actions(batch.observations)
        with _frozen(self._critic_parameters):
            values: Tensor = self._critics(batch.observations, actions)
        return values.amin(0), log_probs

    def _sample_actions(
        self, observations: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        outputs = self._policy(observations)
        rows = (-1, self._num_coordinates)
        mean, log_std = (outputs[name].reshape(rows) for name in ("mean", "log_std"))
        noise = torch.randn(mean.shape, generator=self._noise, device=self._device)
        return squashed_sample(mean, log_std, noise)

    def _temperature_loss(self, weights: Tensor, log_probs: Tensor) -> Tensor:
        surplus = (weights * (log_probs + self._target_entropy)).mean()
        return -(self._temperature.log * surplus).sum()

    @property
    def _target_entropy(self) -> float:
        given = self._sac.target_entropy
        return -float(self._num_coordinates) if given is None else given

    def _gradients(self, losses: Mapping[str, Tensor]) -> list[float]:
        """Return each gradient's norm; not finite where the loss is not."""
        finite = all(math.isfinite(float(loss.detach())) for loss in losses.values())
        if not finite:
            return [math.nan] * len(losses)
        return [self._adams[name].gradient(loss) for name, loss in losses.items()]

    def _descend(self) -> None:
        left = learning_rate(self._spec.learner, self.updates)
        left /= self._spec.learner.learning_rate
        for name, optimiser in self._adams.items():
            if name != "temperature" or not self._sac.fixed_temperature:
                optimiser.learning_rate = left * self._rates[name]
                optimiser.descend()
        critics = self._adams["critics"].parameters
        self._target_parameters.lerp_(critics, self._sac.tau)
        self.updates += 1

    def _batch(self, sample: Sample) -> _Batch:
        arrays = {
            "weights": sample.weights,
            "actions": to_unit_box(sample.actions[self._action.name], self._action),
            "returns": sample.returns,
            "discounts": sample.discounts,
        }
        return _Batch(
            observations=as_tensors(sample.observations, self._device),
            bootstrap_observations=as_tensors(
                sample.bootstrap_observations, self._device
            ),
            **as_tensors(arrays, self._device),
        )

    def actor(self) -> Actor:
        """Return the policy, which workers sample from."""
        return Actor(
            module=self._policy,
            head="gaussian",
            exploration="sample",
            exploration_options={"squashed": 1.0},
            observation=self._observation,
            action=(self._action,),
        )

    def state_dict(self) -> AlgorithmState:
        """Return copies of everything that must survive."""
        state = super().state_dict()
        noise = {"noise": self._noise.get_state()}
        return AlgorithmState({**state.tensors, **noise}, state.values)

    def load_state_dict(self, state: AlgorithmState) -> None:
        """Go on from a state; raises ValueError when it is of other networks."""
        super().load_state_dict(state)
        self._noise.set_state(state.tensors["noise"].cpu())


@contextmanager
def _frozen(parameters: list[nn.Parameter]) -> Iterator[None]:
    """Let gradients go through a module, but not into its parameters."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
