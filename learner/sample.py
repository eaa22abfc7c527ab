"""What the buffer gives and an algorithm learns from."""

from collections.abc import Mapping
from dataclasses import dataclass

from learner.sum_tree import Floats, Indices
from schemas.tensors import Array


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows of one buffer, drawn by priority, and how probable they were.

    Attributes:
        slots: [N] int64.
        probabilities: [N] float64, P(i) within the buffer.
        least: the smallest P of all rows, or of these, as the spec says.
    """

    slots: Indices
    probabilities: Floats
    least: float


@dataclass(frozen=True, slots=True)
class Sample:
    """N transitions, drawn with replacement by priority.

    Attributes:
        indices: [N] int64: give them back to ``update_priorities``.
        weights: [N] float32, (N P(i))^-beta, normalised to at most 1.
        observations: by field name, [N, ...].
        actions: by field name, [N, ...].
        returns: [N] float32.
        discounts: [N] float32.
        bootstrap_observations: by field name, [N, ...]; the target is
            returns + discounts * V(bootstrap_observations).
        counts: how many are of each source, where there are several.
    """

    indices: Indices
    weights: Array
    observations: Mapping[str, Array]
    actions: Mapping[str, Array]
    returns: Array
    discounts: Array
    bootstrap_observations: Mapping[str, Array]
    counts: tuple[int, ...] = ()
