"""Rows of a sequence -> which of them have an n-step target within it."""

import numpy as np

from schemas.tensors import Array


def has_target(valid: Array, discounts: Array, bootstrap_steps: Array) -> Array:
    """Return the rows [L, N] whose target can be computed, bool.

    A row is valid, looks at least one step ahead, and either bootstraps from nothing
    or from an observation that is there: at most that behind row L - 1, with nothing
    but valid rows before it.

    Args:
        valid: [L, N] bool.
        discounts: [L, N]; 0: no bootstrap.
        bootstrap_steps: [L, N] int; 0: a row that is not to be learnt from.
    """
    length, count = valid.shape
    last = np.arange(length)[:, None] + bootstrap_steps - 1  # that the return counts
    inside = np.clip(last, 0, length - 1)
    is_there = (last < length) & valid[inside, np.arange(count)]
    found: Array = valid & (bootstrap_steps >= 1) & (is_there | (discounts == 0))
    return found
