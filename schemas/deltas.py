"""An array <-> its differences from one vector step to the next, bit for bit.

Along the first axis each row is XORed with the one before it: what stands still becomes
zeros. Then the first bytes of all numbers come together, then the second ones, and so
on: signs and exponents, which hardly change, compress apart from digits that do.
XOR and not subtraction: on floats and on frames it comes out smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

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
    return _by_place(found)


def accumulated(data: bytes, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return the array that ``data`` has the differences of.

    Args:
        data: as many bytes as the array has.
        dtype: of the array.
        shape: of it, with a number in it.
    """
    rows = shape[0] if shape else 1
    word = _word(dtype)
    words = _by_number(data, word.itemsize).view(word).reshape(rows, -1)
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


def _by_place(words: Words) -> Array:
    """Return all first bytes, then all second ones, ..."""
    size = words.itemsize
    if size == 1:
        return words.reshape(-1)
    places = words.reshape(-1).view("u1").reshape(-1, size).T
    return np.ascontiguousarray(places).reshape(-1)


def _by_number(data: bytes, size: int) -> Array:
    """Undo ``_by_place``; [bytes]."""
    found = np.frombuffer(data, "u1")
    if size == 1:
        return found
    return np.ascontiguousarray(found.reshape(size, -1).T).reshape(-1)
