"""Bytes of numbers <-> all first bytes, then all second ones, and so on; pure.

Signs and exponents, which hardly change, so compress apart from digits that do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def by_place(values: Bytes, width: int) -> Bytes:
    """Return bytes [N] of numbers of so many each; what makes no number stays last."""
    if width == 1:
        return values
    numbers, rest = _split(values, width)
    return _joined(numbers.reshape(-1, width), rest)


def by_number(values: Bytes, width: int) -> Bytes:
    """Undo ``by_place``."""
    if width == 1:
        return values
    places, rest = _split(values, width)
    return _joined(places.reshape(width, -1), rest)


def _split(values: Bytes, width: int) -> tuple[Bytes, Bytes]:
    end = len(values) // width * width
    return values[:end], values[end:]


def _joined(matrix: Bytes, rest: Bytes) -> Bytes:
    turned = np.ascontiguousarray(matrix.T).reshape(-1)
    return np.concatenate([turned, rest]) if len(rest) else turned
