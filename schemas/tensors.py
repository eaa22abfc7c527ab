"""numpy arrays <-> Tensor records; reading a RAW tensor copies nothing."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from schemas.compression import (
    FAST_LEVEL,
    lz4_block,
    lz4_opened,
    zstd,
    zstd_opened,
)
from schemas.deltas import accumulated, differences
from schemas.encodings import ENCODINGS, LOSSY
from schemas.encodings import Encoding as Encoding
from schemas.errors import SchemaError
from schemas.image_codecs import are_images, decode_images, encode_images

Array = np.ndarray[Any, np.dtype[Any]]

MAX_DIMENSIONS = 16
MAX_TENSOR_BYTES = 64 << 20
LOSSLESS = 100
"""The quality of images that loses nothing."""

# Little-endian numbers only: no objects, strings or dates, whose bytes would be
# pointers or need a locale.
_DTYPE = re.compile(r"(\|b1|\|[iu]1|<[iu][248]|<f[248]|<c(8|16))")


@dataclass(frozen=True, slots=True)
class Tensor:
    """An n-dimensional array as it travels.

    Attributes:
        dtype: numpy's string of a little-endian number, as ``"<f4"``.
        shape: the sizes, outermost first; C order.
        encoding: how the array's bytes became ``data``; ``RAW``: not at all.
        data: the bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    encoding: Encoding
    data: bytes

    def array(self) -> Array:
        """Return the array, read-only; a view of ``data`` when RAW.

        Raises:
            SchemaError: the bytes do not make an array of this dtype and shape.
        """
        expected = checked_bytes(self.dtype, self.shape)
        if self.encoding in LOSSY:
            return _read_only(
                decode_images(self.data, self.dtype, self.shape, self.encoding)
            )
        data = self._opened(expected)
        if len(data) != expected:
            raise SchemaError(
                f"tensor {self.dtype}{list(self.shape)}: expected {expected} "
                f"bytes, found {len(data)}"
            )
        if self.encoding in _DELTAS and expected:
            return _read_only(accumulated(data, self.dtype, self.shape))
        return np.frombuffer(data, self.dtype).reshape(self.shape)

    def _opened(self, expected: int) -> bytes:
        """Return the bytes uncompressed, at most one more than ``expected``."""
        if self.encoding == "RAW":
            return self.data
        if self.encoding in ("ZSTD", "ZSTD_DELTA"):
            return zstd_opened(self.data, expected)
        if self.encoding in ("LZ4", "LZ4_DELTA"):
            return lz4_opened(self.data, expected)
        raise SchemaError(
            f"tensor encoding: expected one of {', '.join(ENCODINGS)}, found "
            f"{self.encoding!r}"
        )

    def __repr__(self) -> str:
        """Leave the bytes out: they would drown a log."""
        return f"Tensor({self.dtype}{list(self.shape)} {self.encoding})"


_DELTAS = ("ZSTD_DELTA", "LZ4_DELTA")


def check_header(tensor: Tensor) -> None:
    """Raise SchemaError unless dtype, shape and size are ones we accept."""
    checked_bytes(tensor.dtype, tensor.shape)


# The same few headers come again and again.
@lru_cache(maxsize=1024)
def checked_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Return the size of an opened array in bytes; raises as ``check_header``."""
    if not _DTYPE.fullmatch(dtype):
        raise SchemaError(
            "tensor dtype: expected a little-endian number such as '<f4', found "
            f"{dtype[:32]!r}"
        )
    if len(shape) > MAX_DIMENSIONS or min(shape, default=0) < 0:
        raise SchemaError(
            f"tensor shape: expected at most {MAX_DIMENSIONS} sizes, none negative, "
            f"found {list(shape[: MAX_DIMENSIONS + 1])}"
        )
    # Without the zeros: beside one, any size would count as nothing.
    if math.prod(filter(None, shape)) > MAX_TENSOR_BYTES:
        raise SchemaError(
            f"tensor shape: expected at most {MAX_TENSOR_BYTES} elements, found "
            f"{list(shape)}"
        )
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size > MAX_TENSOR_BYTES:
        raise SchemaError(
            f"tensor size: expected at most {MAX_TENSOR_BYTES} bytes, found "
            f"{size} ({dtype}{list(shape)})"
        )
    return size


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def pack(array: Any, encoding: Encoding = "RAW", quality: int = LOSSLESS) -> Tensor:
    """Return ``array`` as a Tensor, bit-exact.

    What came after RAW and ZSTD becomes RAW where it would not be smaller: who knows
    only those two tells by the size that it is something else.

    Args:
        array: any numbers; [T + 1, B, ...] of images for JPEGXL and WEBP.
        encoding: how it is packed.
        quality: of JPEGXL and WEBP: below 100, 1 at worst, it is *not* bit-exact.

    Raises:
        SchemaError: the dtype has no place on the wire, or these are no images.
    """
    values = np.asarray(array)
    if values.dtype.byteorder == ">":
        values = values.astype(values.dtype.newbyteorder("<"))
    shape = tuple(values.shape)
    size = checked_bytes(values.dtype.str, shape)
    if encoding == "RAW":
        return Tensor(values.dtype.str, shape, encoding, values.tobytes())
    if encoding == "ZSTD":
        data = zstd(np.ascontiguousarray(values).data)
        return Tensor(values.dtype.str, shape, encoding, data)
    data = _packed(values, encoding, quality) if size else b""
    if len(data) < size:
        return Tensor(values.dtype.str, shape, encoding, data)
    return Tensor(values.dtype.str, shape, "RAW", values.tobytes())


def _packed(values: Array, encoding: Encoding, quality: int) -> bytes:
    if encoding in LOSSY:
        if not are_images(values.dtype.str, values.shape):
            raise SchemaError(
                f"tensor: expected images of uint8 for {encoding}, found "
                f"{values.dtype.str}{list(values.shape)}"
            )
        return encode_images(values, encoding, quality)
    if encoding == "LZ4":
        return lz4_block(np.ascontiguousarray(values).data)
    found = differences(values).data
    if encoding == "LZ4_DELTA":
        return lz4_block(found)
    return zstd(found, FAST_LEVEL)


def pack_map(
    arrays: Mapping[str, Any], encoding: Encoding = "RAW"
) -> dict[str, Tensor]:
    """Pack each array of a mapping."""
    return {name: pack(array, encoding) for name, array in arrays.items()}
