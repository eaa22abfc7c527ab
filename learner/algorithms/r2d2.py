"""R2D2: Q-learning with an LSTM, from prioritised stretches of experience.

The state at a sequence's beginning is the one that the worker recorded. The first
``burnIn`` rows only bring it up to date, for the online and for the target network, and
nothing is learnt from them. Behind them, double Q-learning with n-step targets whose
values are rescaled by h:

    yₜ = h(Rₜ + Γₜ h⁻¹(Q'(sₜ₊ₘ, argmaxₐ Q(sₜ₊ₘ, a)))),   δₜ = Q(sₜ, aₜ) - yₜ

The loss is Huber's, weighted by sequence; what a sequence's errors amount to is
η max|δ| + (1 - η) mean|δ|. Kapturowski et al. 2019,
https://openreview.net/forum?id=r1lyTjAqYX
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
from learner.algorithms.sequence_losses import (
    n_step_targets,
    sequence_loss,
    sequence_priorities,
)
from learner.algorithms.training import (
    as_tensors,
    choose_device,
    learning_rate,
    seeded,
    tensor_copies,
)
from learner.bootstrap import has_target
from learner.networks import QNetwork, discrete_action
from learner.optimiser import FlatAdam, flatten_parameters
from learner.sample import Sequences
from schemas.algorithms import LearnsFrom
from schemas.experiment import Spec
from schemas.records import EnvDescription
from schemas.sizes import stacked
from schemas.tensors import Array


class R2d2:
    """The algorithm ``r2d2``: see `learner.algorithms.base.Algorithm`."""

    learns_from: LearnsFrom = "sequences"

    def __init__(self, env: EnvDescription, spec: Spec) -> None:
        """Make the networks, from the spec's seed.

        Raises:
            UnsupportedSpace: the actions are not one Discrete, or the observations
                have no place in the network.
        """
        self._spec = spec
        learner = spec.learner
        self.sequence_length = learner.r2d2.burn_in + learner.r2d2.sequence_length
        self._action = discrete_action(env, "r2d2")
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
        network = self._spec.learner.network
        with seeded(self._spec.seed):  # twice from the seed: the same
            made = QNetwork(self._observation, self._action.n[0], network)
        return made.to(self._device)

    def update(self, sample: Sequences) -> UpdateResult:
        """Learn from one sample; leaves everything as it was when not finite."""
        learner = self._spec.learner
        errors, learnt = self._find_errors(sample)
        loss = sequence_loss(errors, learnt, self._tensor(sample.weights))
        value, norm = float(loss.detach()), float("nan")
        if np.isfinite(value):
            self._optimiser.learning_rate = learning_rate(learner, self.updates)
            norm = self._optimiser.step(loss)
        finite = bool(np.isfinite(norm))
        if finite:
            self.updates += 1
            if self.updates % learner.target_update_period == 0:
                self._target_parameters.copy_(self._optimiser.parameters)
        priorities = sequence_priorities(errors.detach(), learnt, learner.r2d2.eta)
        return UpdateResult(priorities.cpu().numpy(), value, norm, finite)

    def _find_errors(self, sample: Sequences) -> tuple[Tensor, Tensor]:
        """Return δ [L, N] of the rows behind the burn-in, and which are learnt from."""
        learner, burn_in = self._spec.learner, self._spec.learner.r2d2.burn_in
        observations = as_tensors(sample.observations, self._device)
        states = as_tensors(sample.states, self._device)
        valid = self._tensor(sample.valid)
        q = self._q_behind(observations, states, valid)
        with torch.no_grad():
            features, _ = self._target.torso.unroll(observations, states, valid)
            q_target = self._target.q(features[burn_in:])
            chooser = q.detach() if learner.double else q_target
            best = chooser.argmax(2, keepdim=True)
            targets = n_step_targets(
                self._tensor(sample.returns[burn_in:]),
                self._tensor(sample.discounts[burn_in:]),
                self._tensor(sample.bootstrap_steps[burn_in:]),
                q_target.gather(2, best).squeeze(2),
                rescaled=learner.r2d2.rescale_values,
            )
        actions = self._tensor(sample.actions[self._action.name][burn_in:])
        chosen = actions.to(torch.int64) - (self._action.start or (0,))[0]
        taken = q[:-1].gather(2, chosen[..., None]).squeeze(2)
        learnt = has_target(sample.valid, sample.discounts, sample.bootstrap_steps)
        return taken - targets, self._tensor(learnt[burn_in:])

    def _q_behind(
        self,
        observations: Mapping[str, Tensor],
        states: Mapping[str, Tensor],
        valid: Tensor,
    ) -> Tensor:
        """Return the online network's q behind the burn-in, [L+1, N, A]."""
        burn_in, torso = self._spec.learner.r2d2.burn_in, self._network.torso
        if burn_in:
            warm = {name: values[:burn_in] for name, values in observations.items()}
            with torch.no_grad():
                _, states = torso.unroll(warm, states, valid)
            # The unroll knows nothing of a step behind its last.
            kept = valid[burn_in - 1, :, None]
            states = {name: state * kept for name, state in states.items()}
        rest = {name: values[burn_in:] for name, values in observations.items()}
        features, _ = torso.unroll(rest, states, valid[burn_in:])
        return self._network.q(features)

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
