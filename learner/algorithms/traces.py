"""Rewards, values, probabilities of unrolls -> what values and policies move towards.

Pure, on tensors, time-major. With one-step records ``returns`` are the rewards rₜ and
``discounts`` are γₜ: γ, or 0 where the episode terminated.

    δₜ = rₜ + γₜ V(oₜ₊₁) - V(oₜ)

oₜ₊₁ is what step t led to, at a truncation too. A trace goes on from t to t + 1 exactly
when row t + 1 is valid; the row behind an episode's end is a reset, and is not.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Estimates:
    """What a policy gradient needs of each row; zeros where a row is not valid.

    Attributes:
        targets: [L, N], of the values.
        advantages: [L, N], of the actions that were taken.
    """

    targets: Tensor
    advantages: Tensor


def gae(
    returns: Tensor, discounts: Tensor, values: Tensor, valid: Tensor, trace: float
) -> Estimates:
    """Generalised advantage estimation: Aₜ = δₜ + γₜ λ Aₜ₊₁. Targets are A + V.

    https://arxiv.org/abs/1506.02438

    Args:
        returns: [L, N], rewards.
        discounts: [L, N].
        values: [L+1, N].
        valid: [L, N] bool.
        trace: λ.
    """
    deltas = temporal_differences(returns, discounts, values, valid)
    advantages = _accumulated(deltas, trace * discounts, valid)
    return Estimates(torch.where(valid, advantages + values[:-1], 0.0), advantages)


def v_trace(
    returns: Tensor,
    discounts: Tensor,
    values: Tensor,
    valid: Tensor,
    ratios: Tensor,
    *,
    trace: float,
    rho_clip: float,
    c_clip: float,
) -> Estimates:
    """V-trace of rows that another policy acted in, μ instead of π.

        ρₜ = min(ρ̄, π/μ),   cₜ = λ min(c̄, π/μ)
        vₜ - V(oₜ) = ρₜ δₜ + γₜ cₜ (vₜ₊₁ - V(oₜ₊₁))
        Aₜ = ρₜ (rₜ + γₜ ((1 - λ) V(oₜ₊₁) + λ vₜ₊₁) - V(oₜ))

    https://arxiv.org/abs/1802.01561; there λ = 1 in A. With λ in it as well, and π = μ,
    both are those of GAE.

    Args:
        returns: [L, N], rewards.
        discounts: [L, N].
        values: [L+1, N], of the policy that learns.
        valid: [L, N] bool.
        ratios: [L, N], π/μ of the actions that were taken.
        trace: λ.
        rho_clip: ρ̄.
        c_clip: c̄.
    """
    deltas = temporal_differences(returns, discounts, values, valid)
    rho, c = ratios.clamp(max=rho_clip), ratios.clamp(max=c_clip)
    rho, c = torch.where(valid, rho, 0.0), torch.where(valid, c, 0.0)
    corrections = _accumulated(rho * deltas, discounts * trace * c, valid)
    behind = torch.cat([corrections[1:], torch.zeros_like(corrections[:1])])
    further = torch.where(_goes_on(valid), discounts * trace * behind, 0.0)
    return Estimates(
        targets=torch.where(valid, corrections + values[:-1], 0.0),
        advantages=rho * (deltas + further),
    )


def temporal_differences(
    returns: Tensor, discounts: Tensor, values: Tensor, valid: Tensor
) -> Tensor:
    """Return δ [L, N], 0 where a row is not valid."""
    # Where nothing is bootstrapped the observation may not even be finite.
    behind = torch.where(discounts == 0, 0.0, values[1:])
    return torch.where(valid, returns + discounts * behind - values[:-1], 0.0)


def _goes_on(valid: Tensor) -> Tensor:
    """Whether row t + 1 continues row t: [L, N] bool; the last row has no next one."""
    return valid & torch.cat([valid[1:], torch.zeros_like(valid[:1])])


def _accumulated(terms: Tensor, weights: Tensor, valid: Tensor) -> Tensor:
    """Return xₜ = termₜ + weightₜ xₜ₊₁ [L, N], where xₜ₊₁ continues."""
    weights = torch.where(_goes_on(valid), weights, 0.0)
    found = torch.empty_like(terms)
    behind = torch.zeros_like(terms[0])
    for step in range(len(terms) - 1, -1, -1):
        behind = torch.addcmul(terms[step], weights[step], behind)
        found[step] = behind
    return found
