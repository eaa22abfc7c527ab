"""IMPALA: an actor-critic that corrects by V-trace for how old its experience is.

https://arxiv.org/abs/1802.01561; see `learner.algorithms.traces` and `policy_losses`.
"""

from __future__ import annotations

import math

import torch

from learner.algorithms.actor_critic import ActorCritic
from learner.algorithms.base import UpdateResult
from learner.algorithms.policy_losses import Rows, actor_critic_loss
from learner.algorithms.traces import v_trace
from learner.policy_heads import rows_of
from learner.sample import Sequences


class Impala(ActorCritic):
    """The algorithm ``impala``: see `learner.algorithms.base.Algorithm`."""

    def update(self, sequences: Sequences) -> UpdateResult:
        """Take one step over all rows; leaves all as it was when not finite.

        Values are the current network's, of observations that the behaviour policy
        met; a recurrent one starts from the behaviour policy's states.
        """
        rollout, spec = self._open(sequences), self._spec.learner
        outputs = self._network.unroll(
            rollout.observations, rollout.states, rollout.valid
        )
        values, valid = outputs["value"].detach(), rollout.valid
        acted = rows_of(outputs, valid)
        ratios = torch.zeros_like(rollout.log_probs)
        with torch.no_grad():
            log_probs = self._head.log_prob(acted, rollout.taken[valid])
            ratios[valid] = (log_probs - rollout.log_probs[valid]).exp()
        estimates = v_trace(
            rollout.returns,
            rollout.discounts,
            values,
            valid,
            ratios,
            trace=spec.policy_gradient.trace_lambda,
            rho_clip=spec.impala.rho_clip,
            c_clip=spec.impala.c_clip,
        )
        columns = (
            rollout.taken,
            rollout.log_probs,
            values[:-1],
            estimates.targets,
            estimates.advantages,
        )
        loss = actor_critic_loss(
            self._head,
            acted,
            Rows(*(column[valid] for column in columns)),
            spec.impala.rho_clip,
            spec.policy_gradient,
        )
        norm = self._descend(loss.total)
        finite = math.isfinite(norm)
        self.updates += finite
        value = float(loss.total.detach())
        return UpdateResult(None, value, norm, finite, loss.figures)
