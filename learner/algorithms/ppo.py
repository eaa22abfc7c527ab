"""PPO: several epochs of clipped policy gradients over each iteration's rows.

https://arxiv.org/abs/1707.06347; see `learner.algorithms.traces` and `policy_losses`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from learner.algorithms.actor_critic import ActorCritic, Rollout
from learner.algorithms.base import UpdateResult
from learner.algorithms.policy_losses import Loss, Rows, ppo_loss
from learner.algorithms.traces import gae
from learner.policy_heads import Outputs, rows_of
from learner.sample import Sequences


class Ppo(ActorCritic):
    """The algorithm ``ppo``: see `learner.algorithms.base.Algorithm`.

    Advantages and the values' targets are made once, at the start of an iteration, by
    the values of the network as it is then: rows may be of the policy before, whose own
    values are older. Ratios are to the behaviour policy, by the record's ``log_prob``.

    A minibatch is of rows; with an LSTM of whole sequences, each replayed from the
    state in which the behaviour policy began it: at most one policy old.
    """

    def update(self, sequences: Sequences) -> UpdateResult:
        """Make one iteration; leaves all as it was when a step was not finite.

        It ends early once KL(μ ‖ π), estimated as ``policy_losses.divergence`` over a
        minibatch, is above ``target_kl``: before the step that would go further. The
        figure ``early_stops`` is 1 then, else 0: its mean is their share.
        """
        rollout, spec = self._open(sequences), self._spec.learner
        rows = self._rows(rollout)
        before = self._optimiser.parameters.clone(), self._optimiser.state_dict()
        drawn = self.rng.bit_generator.state
        steps, stopped_early = _Steps(), False
        for indices, outputs in self._minibatches(rollout):
            loss = ppo_loss(
                self._head, outputs, rows.at(indices), spec.ppo, spec.policy_gradient
            )
            stopped_early = 0 < spec.ppo.target_kl < loss.figures["kl"]
            if stopped_early:
                steps.add(loss, 0.0)
                break
            norm = self._descend(loss.total)
            steps.add(loss, norm)
            if not math.isfinite(norm):
                self._optimiser.parameters.copy_(before[0])
                self._optimiser.load_state_dict(before[1])
                self.rng.bit_generator.state = drawn
                return steps.result(finite=False)
        self.updates += 1
        return steps.result(finite=True, early_stops=float(stopped_early))

    @torch.no_grad()
    def _rows(self, rollout: Rollout) -> Rows:
        """Return all rows, those that are not valid too: row t of n is t N + n."""
        outputs = self._network.unroll(
            rollout.observations, rollout.states, rollout.valid
        )
        values = outputs["value"]
        estimates = gae(
            rollout.returns,
            rollout.discounts,
            values,
            rollout.valid,
            self._spec.learner.policy_gradient.trace_lambda,
        )
        return Rows(
            taken=rollout.taken.flatten(0, 1),
            log_probs=rollout.log_probs.flatten(),
            values=values[:-1].flatten(),
            targets=estimates.targets.flatten(),
            advantages=estimates.advantages.flatten(),
        )

    def _minibatches(self, rollout: Rollout) -> Iterator[tuple[Tensor, Outputs]]:
        """Yield the indices of valid rows [K], and what the network says of them now.

        In each epoch each row comes once. Minibatches differ in size by one row, or one
        sequence, at most, as far as all rows are valid.
        """
        ppo, valid = self._spec.learner.ppo, rollout.valid
        is_recurrent = bool(self._network.states)
        units = (valid.any(0) if is_recurrent else valid.flatten()).nonzero()[:, 0]
        count = max(1, round(int(valid.sum()) / ppo.minibatch_size))
        forward = self._replay if is_recurrent else self._look_up
        for _ in range(ppo.epochs):
            shuffled = self.rng.permutation(len(units))
            for part in np.array_split(shuffled, min(count, max(1, len(units)))):
                yield forward(rollout, units[torch.from_numpy(part)])

    def _look_up(self, rollout: Rollout, rows: Tensor) -> tuple[Tensor, Outputs]:
        observations = {
            name: array[:-1].flatten(0, 1)[rows]
            for name, array in rollout.observations.items()
        }
        return rows, self._network(observations)

    def _replay(self, rollout: Rollout, columns: Tensor) -> tuple[Tensor, Outputs]:
        valid = rollout.valid[:, columns]
        outputs = self._network.unroll(
            {n: array[:-1, columns] for n, array in rollout.observations.items()},
            {name: state[columns] for name, state in rollout.states.items()},
            valid,
        )
        numbers = torch.arange(rollout.valid.numel(), device=self._device)
        rows = numbers.view_as(rollout.valid)[:, columns][valid]
        return rows, rows_of(outputs, valid)


class _Steps:
    """What the steps of an iteration did."""

    def __init__(self) -> None:
        self._losses: list[float] = []
        self._norms: list[float] = []
        self._figures: list[Mapping[str, float]] = []

    def add(self, loss: Loss, norm: float) -> None:
        """Note a step; ``norm`` 0 where it was not taken."""
        self._losses.append(float(loss.total.detach()))
        self._norms.append(norm)
        self._figures.append(loss.figures)

    def result(self, *, finite: bool, **more: float) -> UpdateResult:
        """Return means, and the largest norm; of a failed iteration its last step's."""
        if not finite:
            last = self._losses[-1], self._norms[-1]
            return UpdateResult(None, *last, False, self._figures[-1])
        figures = {
            name: sum(step[name] for step in self._figures) / len(self._figures)
            for name in self._figures[0]
        }
        loss = sum(self._losses) / len(self._losses)
        return UpdateResult(None, loss, max(self._norms), True, figures | more)
