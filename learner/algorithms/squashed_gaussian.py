"""A Gaussian's sample through tanh: the action in [-1, 1], and its log-density."""

import math

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from schemas.records import SpaceField
from schemas.tensors import Array

_LOG_2 = math.log(2)
_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


def squashed_sample(
    mean: Tensor, log_std: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Return a = tanh(u), u = mean + std * noise, and log π(a).

    log π(a) = Σ log N(u; mean, std) - log(1 - tanh² u), the latter as
    2 (log 2 - u - softplus(-2 u)), which is finite for any u. (arXiv:1812.05905, C.)

    Args:
        mean: [N, D].
        log_std: [N, D].
        noise: [N, D], of the standard normal distribution.

    Returns:
        Actions [N, D] and log-densities [N]; gradients go through both.
    """
    before = mean + log_std.exp() * noise
    gaussian = -0.5 * noise.square() - log_std - _HALF_LOG_2_PI
    slope = 2 * (_LOG_2 - before - F.softplus(-2 * before))
    return before.tanh(), (gaussian - slope).sum(1)


def to_unit_box(actions: Array, field: SpaceField) -> Array:
    """Return recorded actions [N, ...] of a box with bounds as [N, D] in [-1, 1].

    Raises:
        ValueError: the box has no bounds.
    """
    if field.low is None or field.high is None:
        raise ValueError(f"action {field.name!r}: expected bounds, found none")
    low = field.low.array().reshape(-1).astype(np.float64)
    high = field.high.array().reshape(-1).astype(np.float64)
    flat = actions.reshape(len(actions), -1)
    unit = (flat - low) / (high - low) * 2 - 1
    return np.clip(unit, -1, 1).astype(np.float32)
