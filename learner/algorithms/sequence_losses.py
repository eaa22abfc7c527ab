"""Values along sequences -> targets, errors, loss and priorities. Pure.

Time-major: L rows of N sequences. Kapturowski et al. 2019, Recurrent Experience Replay
in Distributed Reinforcement Learning, https://openreview.net/forum?id=r1lyTjAqYX
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from learner.value_rescaling import rescale, unscale


def n_step_targets(
    returns: Tensor,
    discounts: Tensor,
    bootstrap_steps: Tensor,
    values: Tensor,
    *,
    rescaled: bool,
) -> Tensor:
    """Return yₜ = h(Rₜ + Γₜ h⁻¹(Vₜ₊ₘ)), [L, N]; without rescaling h is the identity.

    Where t + m is beyond L the last value stands in: leave those rows out, unless their
    discount is 0.

    Args:
        returns: R, [L, N].
        discounts: Γ, [L, N].
        bootstrap_steps: m, [L, N] int.
        values: V as learnt, of the observations at 0, ..., L: [L+1, N].
        rescaled: whether values are learnt as h of what they are.
    """
    length = len(returns)
    steps = torch.arange(length, device=returns.device)[:, None]
    at = (steps + bootstrap_steps).clamp(max=length).to(torch.int64)
    after = values.gather(0, at)
    if not rescaled:
        return returns + discounts * after
    return rescale(returns + discounts * unscale(after))


def sequence_loss(errors: Tensor, learnt: Tensor, weights: Tensor) -> Tensor:
    """Return the mean of wₙ huber(δₜₙ) over the rows that are learnt from.

    Args:
        errors: δ, [L, N]; anything where nothing is learnt.
        learnt: [L, N] bool.
        weights: w, [N].
    """
    errors = torch.where(learnt, errors, 0.0)  # NaN too, of rows that count for nothing
    losses = F.huber_loss(errors, torch.zeros_like(errors), reduction="none")
    return (weights * losses).sum() / learnt.sum().clamp(min=1)


def sequence_priorities(errors: Tensor, learnt: Tensor, eta: float) -> Tensor:
    """Return η max|δ| + (1 - η) mean|δ| of each sequence's learnt rows, [N].

    NaN where none is: there is nothing to say.
    """
    sizes = torch.where(learnt, errors.abs(), 0.0)
    mean = sizes.sum(0) / learnt.sum(0)  # 0 / 0: NaN
    return eta * sizes.amax(0) + (1 - eta) * mean
