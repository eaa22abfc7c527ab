"""Tensors -> the same at half the size, and back; pure.

float16 has 11 bits of precision: the relative error of numbers from 6.1e-5 to 65,504 is
at most 2^-11, the absolute one of smaller numbers at most 2^-25. What was rounded is
what acts, everywhere: workers, evaluator and `play` read the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from schemas.tensors import Array

_MOST = float(np.finfo(np.float16).max)


def halved(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return float32 tensors as float16; as they are where a number would overflow.

    Numbers that are not finite stay so: whoever loads them refuses them.
    """
    return {name: _halved(tensor) for name, tensor in tensors.items()}


def widened(tensor: Array, dtype: str) -> Array:
    """Return a float16 tensor as the float32 that a graph takes; others as they are."""
    is_halved = tensor.dtype == np.float16 and np.dtype(dtype) == np.float32
    return tensor.astype(np.float32) if is_halved else tensor


def _halved(tensor: Array) -> Array:
    if tensor.dtype != np.float32:
        return tensor
    finite = np.abs(tensor[np.isfinite(tensor)])
    if finite.size and finite.max() > _MOST:
        return tensor
    return tensor.astype(np.float16)
