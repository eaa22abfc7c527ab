"""How many frames of its episode each observation has before it, up to a stack's k - 1.

Below zero: not all of them are known. An episode begins in the row after one that is
not valid.
"""

from __future__ import annotations

import numpy as np

from learner.chunks import ChunkRef
from schemas.tensors import Array


def age_alone(ref: ChunkRef, *, is_after_blank: bool, full: int) -> int:
    """Return the age of a batch's first observations when none before it is there.

    Args:
        ref: which batch.
        is_after_blank: see Chunk.
        full: k - 1.
    """
    return 0 if ref.first_step == 0 or is_after_blank else -full


def ages_from(first: Array | int, valid: Array, full: int) -> Array:
    """Return the ages [T+1, B] of observations, int16.

    Args:
        first: [B], of row 0.
        valid: [T, B] bool.
        full: k - 1.
    """
    ages = np.empty((len(valid) + 1, valid.shape[1]), np.int16)
    ages[0] = first
    for step, is_valid in enumerate(valid):
        older = ages[step] + 1
        older[older == 0] = full  # as many frames seen as a stack takes
        ages[step + 1] = np.where(is_valid, np.minimum(older, full), 0)
    return ages
