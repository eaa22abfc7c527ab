"""How far what is said of a return is from its target: mean, C51, QR-DQN.

Pure functions of tensors. What is said of it is [N, A]: one number, the logits of A
atoms, or A quantiles; the target is R + Γ Z', where Z' is said in the same way.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Errors:
    """Of each row.

    Attributes:
        losses: [N], unweighted.
        td_errors: [N], of the means. Rainbow takes priorities from the loss; here those
            of fresh rows are TD errors of means, which processors find, and both are in
            one tree.
    """

    losses: Tensor
    td_errors: Tensor


ErrorFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Errors]
"""``(said [N, A], Z' [N, A], returns [N], discounts [N]) -> Errors``."""


def mean_errors(
    said: Tensor, after: Tensor, returns: Tensor, discounts: Tensor
) -> Errors:
    """Return the Huber loss of a mean; A is 1."""
    td_errors = said.squeeze(1) - (returns + discounts * after.squeeze(1))
    zeros = torch.zeros_like(td_errors)
    return Errors(F.huber_loss(td_errors, zeros, reduction="none"), td_errors)


def quantile_errors(
    said: Tensor, after: Tensor, returns: Tensor, discounts: Tensor
) -> Errors:
    """Return the quantile Huber loss of quantiles."""
    targets = returns[:, None] + discounts[:, None] * after
    return Errors(quantile_huber_loss(said, targets), said.mean(1) - targets.mean(1))


def categorical_errors(support: Tensor) -> ErrorFunction:
    """Return the function of logits over the atoms of ``support`` [A]."""

    def errors(
        said: Tensor, after: Tensor, returns: Tensor, discounts: Tensor
    ) -> Errors:
        values = returns[:, None] + discounts[:, None] * support
        target = project(values, after.softmax(1), support)
        means = [(p * support).sum(1) for p in (said.softmax(1), target)]
        return Errors(cross_entropy(target, said), means[0] - means[1])

    return errors


def project(values: Tensor, probabilities: Tensor, support: Tensor) -> Tensor:
    """Return the distribution on ``support`` that is nearest in Cramér distance.

    The mass at a value goes to the two atoms around it, more to the nearer one; what
    lies beyond the support goes to its ends. (arXiv:1707.06887, algorithm 1.)

    Args:
        values: [N, M], where the mass is; NaN makes its row NaN.
        probabilities: [N, M], how much, of sum 1.
        support: [A], growing in equal steps; A >= 2.

    Returns:
        [N, A], of sum 1.
    """
    least, greatest = support[0], support[-1]
    last = support.shape[0] - 1
    # In units of atoms. What is not a number has no atom: it goes through the mass.
    at = (values.clamp(least, greatest) - least) / (greatest - least) * last
    below = at.nan_to_num(0.0).floor().clamp(0, last - 1)
    share_above = at - below
    below = below.to(torch.int64)
    projected = values.new_zeros(values.shape[0], last + 1)
    projected.scatter_add_(1, below, probabilities * (1 - share_above))
    return projected.scatter_add_(1, below + 1, probabilities * share_above)


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """Return -Σᵢ targetᵢ log softmax(logits)ᵢ of each row, [N], of two [N, A]."""
    return -(target * logits.log_softmax(1)).sum(1)


def quantile_huber_loss(
    quantiles: Tensor, targets: Tensor, kappa: float = 1.0
) -> Tensor:
    """Return the quantile Huber loss of each row, [N].

    Σᵢ meanⱼ |τᵢ - 1(uᵢⱼ < 0)| huber(uᵢⱼ) / kappa, with uᵢⱼ = targetⱼ - quantileᵢ and
    τᵢ = (i + 1/2) / A. (arXiv:1710.10044, equation 10.)

    Args:
        quantiles: [N, A], at the midpoints τ.
        targets: [N, M], equally probable; a constant.
        kappa: up to where errors count by their square; above 0.
    """
    count = quantiles.shape[1]
    tau = (torch.arange(count, device=quantiles.device) + 0.5) / count
    errors = targets[:, None, :] - quantiles[:, :, None]
    size = errors.abs()
    huber = torch.where(size <= kappa, 0.5 * size**2, kappa * (size - 0.5 * kappa))
    weights = (tau[None, :, None] - (errors.detach() < 0).to(huber.dtype)).abs()
    return (weights * huber / kappa).mean(2).sum(1)
