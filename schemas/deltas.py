"""An array <-> its differences from one vector step to the next, bit for bit.

Along the first axis each row is XORed with the one before it: what stands still becomes
zeros. Then bytes are put by their place, see `schemas.byte_places`.
XOR and not subtraction: on floats and on frames it comes out smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from schemas.byte_places import by_number, by_place

Array = np.ndarray[Any, np.dtype[Any]]
Words = np.ndarray[Any, np.dtype[Any]]

# numpy's accumulate goes down columns: slow for wide rows, which a loop takes whole.
_WIDE_BYTES = 1_024


def differences(array: Array) -> Array:
    """Return the bytes [nbytes] of the differences.

    Args:
        array: [T, ...], C order, little-endian, with a number in it.
    """
    words = _words(array)
    found = words.copy()
    np.bitwise_xor(words[1:], words[:-1], out=found[1:])
    return by_place(found.reshape(-1).view(np.uint8), found.itemsize)


def accumulated(data: bytes, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return the array that ``data`` has the differences of.

    Args:
        data: as many bytes as the array has.
        dtype: of the array.
        shape: of it, with a number in it.
    """
    rows = shape[0] if shape else 1
    word = _word(dtype)
    found = by_number(np.frombuffer(data, np.uint8), word.itemsize)
    words = found.view(word).reshape(rows, -1)
    if words.nbytes < _WIDE_BYTES * rows:
        words = np.bitwise_xor.accumulate(words, axis=0)
    else:
        words = words if words.flags.writeable else words.copy()
        for row in range(1, rows):
            words[row] ^= words[row - 1]
    return words.reshape(-1).view(dtype).reshape(shape)


def _word(dtype: str) -> np.dtype[Any]:
    """Return the unsigned integer as wide as a number; half of it, of the widest."""
    return np.dtype(f"<u{min(np.dtype(dtype).itemsize, 8)}")


def _words(array: Array) -> Words:
    """Return the raw bits [T, words of a row]."""
    rows = array.shape[0] if array.shape else 1
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(_word(array.dtype.str)).reshape(rows, -1)
