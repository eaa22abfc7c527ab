"""The first bytes of a safetensors file -> how many numbers it holds; pure."""

from __future__ import annotations

import json
import struct
from typing import Any

_LENGTH = struct.Struct("<Q")
_METADATA = "__metadata__"
MOST = 2**53
"""More numbers nobody has: a header that tells of more is wrong."""


def count_numbers(data: bytes) -> int | None:
    """Return how many numbers all tensors hold together; None: it cannot be told.

    Args:
        data: the file, or its beginning: 8 bytes of length, then a header as JSON.
    """
    if len(data) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(data)
    text = data[_LENGTH.size : _LENGTH.size + length]
    if len(text) < length:
        return None
    try:
        header = json.loads(text)
        shapes = [each["shape"] for name, each in header.items() if name != _METADATA]
        total = sum(_size(shape) for shape in shapes)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return total if total <= MOST else None


def _size(shape: Any) -> int:
    """Return how many numbers a tensor of this shape holds.

    Raises:
        ValueError: it is no shape, or not one of a tensor that there can be.
    """
    if not isinstance(shape, list):
        raise ValueError(f"expected a list, found {shape!r:.40}")
    size = 1
    for each in shape:
        # Exactly int: JSON has true, 2.0 and 1e999 too.
        if type(each) is not int or not 0 <= each <= MOST:
            raise ValueError(f"expected sizes of 0 to {MOST}, found {each!r:.40}")
        size *= each
        if size > MOST:
            raise ValueError(f"expected at most {MOST} numbers, found more")
    return size
