"""What the buffer gives and an algorithm learns from."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from learner.bootstrap import has_target
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

    @property
    def num_rows(self) -> int:
        """The rows that are learnt from."""
        return len(self.indices)


@dataclass(frozen=True, slots=True)
class Sequences:
    """N stretches of L consecutive rows of one environment each, time-major.

    Rows that are not valid are not learnt from: resets, crashes, and what only fills up
    a stretch that is shorter than others. A row's successor is the next one where that
    is valid too; the observation behind a valid row is what it led to in any case. The
    recurrent state is zero before row t + 1 exactly when row t is not valid.

    Attributes:
        indices: [N] int64: give them back to ``update_priorities``; of unrolls, which
            come once, of no use.
        weights: [N] float32, as in Sample; of unrolls ones.
        observations: by field name, [L+1, N, ...].
        actions: by field name, [L, N, ...].
        returns: [L, N] float32; with n_step = 1 the scaled rewards.
        discounts: [L, N] float32, 0 where the episode terminated; the target is
            returns + discounts * V(observation at t + bootstrap_steps).
        bootstrap_steps: [L, N] int32; t + bootstrap_steps may be beyond L.
        valid: [L, N] bool.
        states: recurrent state before row 0, by name, [N, ...].
        behaviour: what the policy that acted said, by name: ``value`` [L+1, N, ...],
            others, as ``log_prob`` and ``sample``, [L, N, ...].
        burn_in: rows at the beginning that only warm up.
        counts: as in Sample.
    """

    indices: Indices
    weights: Array
    observations: Mapping[str, Array]
    actions: Mapping[str, Array]
    returns: Array
    discounts: Array
    bootstrap_steps: Array
    valid: Array
    states: Mapping[str, Array]
    behaviour: Mapping[str, Array]
    burn_in: int = 0
    counts: tuple[int, ...] = ()

    @property
    def num_rows(self) -> int:
        """The rows that are learnt from: those with a target, warmed up."""
        found = has_target(self.valid, self.discounts, self.bootstrap_steps)
        return int(np.count_nonzero(found[self.burn_in :]))
