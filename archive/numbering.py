"""Which episode a row belongs to."""

from __future__ import annotations

import numpy as np

from schemas.tensors import Array


def number_rows(ended: Array, episodes: Array) -> Array:
    """Return the number [T, B] of the episode of each row.

    An end belongs to its episode; the reset row, behind it, is the first of the next.

    Args:
        ended: [T, B] bool, rows that end one.
        episodes: [B] int64, the number of row 0.
    """
    before = np.zeros(ended.shape, np.int64)
    np.cumsum(ended[:-1], axis=0, out=before[1:])
    return before + episodes[None, :]
