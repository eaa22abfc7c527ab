"""The first bytes of a safetensors file -> how many numbers it holds; pure."""

from __future__ import annotations

import json
import math
import struct

_LENGTH = struct.Struct("<Q")
_METADATA = "__metadata__"


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
        return sum(int(math.prod(shape)) for shape in shapes)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
