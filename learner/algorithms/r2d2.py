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

import torch
from torch import Tensor

from learner.algorithms.base import UpdateResult
from learner.algorithms.sequence_losses import (
    n_step_targets,
    sequence_loss,
    sequence_priorities,
)
from learner.algorithms.training import as_tensors
from learner.algorithms.value_based import ValueBased
from learner.bootstrap import has_target
from learner.sample import Sequences
from schemas.algorithms import LearnsFrom
from schemas.experiment import Spec
from schemas.records import EnvDescription


class R2d2(ValueBased):
    """The algorithm ``r2d2``: see `learner.algorithms.base.Algorithm`."""

    learns_from: LearnsFrom = "sequences"

    def __init__(self, env: EnvDescription, spec: Spec) -> None:
        """Make the networks; raises UnsupportedSpace as ValueBased does."""
        super().__init__(env, spec)
        r2d2 = spec.learner.r2d2
        self.sequence_length = r2d2.burn_in + r2d2.sequence_length

    def update(self, sample: Sequences) -> UpdateResult:
        """Learn from one sample; leaves everything as it was when not finite."""
        errors, learnt = self._find_errors(sample)
        loss = sequence_loss(errors, learnt, self._tensor(sample.weights))
        eta = self._spec.learner.r2d2.eta
        return self._descend(loss, sequence_priorities(errors.detach(), learnt, eta))

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
        chosen = self._indices(sample.actions[self._action.name][burn_in:])
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
