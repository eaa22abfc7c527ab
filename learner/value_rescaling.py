"""Values <-> the scale in which R2D2 learns them: about their square root.

    h(x) = sign(x) (√(|x| + 1) - 1) + ε x

A small network can tell returns of 1 and of 10,000 apart without clipped rewards.
Pohlen et al. 2018, https://arxiv.org/abs/1805.11593
"""

from torch import Tensor

EPSILON = 1e-3
"""What keeps the inverse from growing without bounds in its slope."""


def rescale(values: Tensor, epsilon: float = EPSILON) -> Tensor:
    """Return h of each value; any shape."""
    size = values.abs()
    return values.sign() * ((size + 1).sqrt() - 1) + epsilon * values


def unscale(values: Tensor, epsilon: float = EPSILON) -> Tensor:
    """Return the inverse of h of each value; any shape.

    h⁻¹(y) = sign(y) (s² - 1), s the root of ε s² + s = |y| + 1 + ε. Written as a
    quotient, for the usual difference of nearly equal numbers loses half of float32's
    digits.
    """
    total = values.abs() + 1 + epsilon
    root = 2 * total / (1 + (1 + 4 * epsilon * total).sqrt())
    return values.sign() * (root - 1) * (root + 1)
