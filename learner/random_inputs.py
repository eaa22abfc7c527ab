"""Fields of a space -> random values, with which a graph is tried."""

from __future__ import annotations

import numpy as np

from schemas.records import SpaceField
from schemas.tensors import Array


def random_values(field: SpaceField, size: int, rng: np.random.Generator) -> Array:
    """Return values [size, ...] that a field can have; a box's are about zero."""
    shape, dtype = (size, *field.shape), np.dtype(field.dtype)
    values: Array
    if field.kind == "discrete":
        start = (field.start or (0,))[0]
        values = rng.integers(start, start + field.n[0], shape)
    elif field.kind == "multi_discrete":
        low = np.resize(field.start or (0,), field.shape)
        values = rng.integers(low, low + np.resize(field.n, field.shape), shape)
    elif field.kind == "multi_binary" or dtype == np.bool_:
        values = rng.integers(0, 2, shape)
    elif dtype.kind in "iu":
        values = rng.integers(0, min(np.iinfo(dtype).max, 255), shape, endpoint=True)
    else:
        values = rng.standard_normal(shape)
    return values.astype(dtype)
