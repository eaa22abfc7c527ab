"""The losses of PPO and of V-trace's actor-critic; pure, on tensors.

Both add value_cost times the mean squared error of the values, and subtract
entropy_cost times the mean entropy. r = π/μ, by the behaviour log-probabilities of
the record, is what both correct by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from learner.policy_heads import Outputs, PolicyHead
from schemas.algorithm_specs import PolicyGradientSpec, PpoSpec

_EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that are learnt from, one axis [K].

    Attributes:
        taken: what was sampled from the behaviour policy [K, ...].
        log_probs: of that, by the behaviour policy.
        values: before the iteration.
        targets: what values move towards.
        advantages: of what was taken.
    """

    taken: Tensor
    log_probs: Tensor
    values: Tensor
    targets: Tensor
    advantages: Tensor

    def at(self, indices: Tensor) -> Rows:
        """Return some of the rows."""
        return Rows(*(getattr(self, field.name)[indices] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss to descend from, and what metrics say of it.

    Attributes:
        total: a scalar.
        figures: ``policy_loss``, ``value_loss``, ``entropy``; ``kl``: k3, see
            ``divergence``; ``clip_fraction``: share of rows beyond the clip;
            ``explained_variance`` of the targets, by the values of ``Rows``.
    """

    total: Tensor
    figures: Mapping[str, float]


def ppo_loss(
    head: PolicyHead,
    outputs: Outputs,
    rows: Rows,
    ppo: PpoSpec,
    costs: PolicyGradientSpec,
) -> Loss:
    """PPO's clipped loss: -mean min(r A, clip(r, 1 - ε, 1 + ε) A), and the rest.

    Advantages are brought to mean 0 and deviation 1 over these rows, if asked for. With
    ``value_clip`` c the value's error is the larger of its own and that of the value
    cut to within c of the one before. https://arxiv.org/abs/1707.06347
    """
    log_ratios = head.log_prob(outputs, rows.taken) - rows.log_probs
    ratios = log_ratios.exp()
    advantages = rows.advantages
    if costs.normalise_advantages:
        advantages = normalised(advantages)
    clipped = ratios.clamp(1 - ppo.clip, 1 + ppo.clip)
    policy_loss = -torch.minimum(ratios * advantages, clipped * advantages).mean()
    values = outputs["value"]
    errors = (values - rows.targets).square()
    if ppo.value_clip:
        moved = (values - rows.values).clamp(-ppo.value_clip, ppo.value_clip)
        errors = torch.maximum(errors, (rows.values + moved - rows.targets).square())
    beyond = (ratios.detach() - 1).abs() > ppo.clip
    return _sum(head, outputs, rows, costs, policy_loss, errors, log_ratios, beyond)


def actor_critic_loss(
    head: PolicyHead,
    outputs: Outputs,
    rows: Rows,
    rho_clip: float,
    costs: PolicyGradientSpec,
) -> Loss:
    """V-trace's loss: -mean A log π(a), and the rest; A holds ρ already.

    https://arxiv.org/abs/1802.01561
    """
    log_probs = head.log_prob(outputs, rows.taken)
    policy_loss = -(rows.advantages * log_probs).mean()
    errors = (outputs["value"] - rows.targets).square()
    log_ratios = log_probs - rows.log_probs
    beyond = log_ratios.detach().exp() > rho_clip
    return _sum(head, outputs, rows, costs, policy_loss, errors, log_ratios, beyond)


def _sum(
    head: PolicyHead,
    outputs: Outputs,
    rows: Rows,
    costs: PolicyGradientSpec,
    policy_loss: Tensor,
    value_errors: Tensor,
    log_ratios: Tensor,
    beyond_clip: Tensor,
) -> Loss:
    value_loss, entropy = value_errors.mean(), head.entropy(outputs).mean()
    total = policy_loss + costs.value_cost * value_loss - costs.entropy_cost * entropy
    figures = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "kl": divergence(log_ratios),
        "clip_fraction": beyond_clip.float().mean(),
        "explained_variance": explained_variance(rows.values, rows.targets),
    }
    return Loss(total, {name: float(value.detach()) for name, value in figures.items()})


def normalised(advantages: Tensor) -> Tensor:
    """Return them with mean 0 and deviation 1."""
    deviation = advantages.std(correction=0)
    return (advantages - advantages.mean()) / (deviation + _EPSILON)


def divergence(log_ratios: Tensor) -> Tensor:
    """Return KL(μ ‖ π) as rows of μ tell it: mean of r - 1 - log r.

    The estimator k3 of http://joschu.net/blog/kl-approx.html: without bias, and never
    below 0, as -mean log r may be.
    """
    log_ratios = log_ratios.detach()
    return (log_ratios.exp() - 1 - log_ratios).mean()


def explained_variance(values: Tensor, targets: Tensor) -> Tensor:
    """Return 1 - Var(targets - values) / Var(targets); 0 where targets are all one."""
    variance = targets.var(correction=0)
    left = (targets - values).var(correction=0)
    return torch.where(variance > 0, 1 - left / variance, 0.0)
