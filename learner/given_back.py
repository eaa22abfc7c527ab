"""TD errors given back with a sample's indices -> new priorities, by slot."""

import numba
import numpy as np

from learner.sum_tree import Floats, Indices, as_compiled
from schemas.tensors import Array

_KEPT = (
    "Tuple((int64[::1], float64[::1]))"
    "(int64[::1], float64[::1], int64[:], int64, int64, float64)"
)


def given_back(
    indices: Indices, errors: Array, bootstrap_at: Indices, held: range, epsilon: float
) -> tuple[Indices, Floats]:
    """Return the slots of rows and their priorities |TD error| + epsilon, [M] each.

    Left out are rows that are not held any more, rows that cannot be drawn any more,
    and errors that are not finite.

    Args:
        indices: positions of rows [N].
        errors: of each [N].
        bootstrap_at: by slot, below zero where the row cannot be drawn.
        held: the positions that are.
        epsilon: so that no row is never drawn again.

    Raises:
        ValueError: there are not as many errors as rows.
    """
    if indices.shape != errors.shape or indices.ndim != 1:
        raise ValueError(
            "expected as many errors as indices, in one dimension, found "
            f"{errors.shape} and {indices.shape}"
        )
    indices = as_compiled(indices, np.int64)
    errors = as_compiled(errors, np.float64)
    slots, priorities = _kept(
        indices, errors, bootstrap_at, held.start, held.stop, epsilon
    )
    return slots, priorities


# In one pass: a batch is small, and each numpy call costs as much as its arithmetic.
@numba.njit(_KEPT, cache=True)
def _kept(
    indices: Indices, errors: Floats, bootstrap_at: Indices, first: int, head: int,
    epsilon: float,
) -> tuple[Indices, Floats]:  # fmt: skip
    slots = np.empty(len(indices), np.int64)
    priorities = np.empty(len(indices), np.float64)
    count = 0
    for k in range(len(indices)):
        if not first <= indices[k] < head:
            continue
        slot = indices[k] % len(bootstrap_at)
        priority = abs(errors[k]) + epsilon
        if priority < np.inf and bootstrap_at[slot] >= 0:  # false for NaN too
            slots[count], priorities[count] = slot, priority
            count += 1
    return slots[:count], priorities[:count]
