"""numpy arrays <-> Tensor records; reading a RAW tensor copies nothing."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import zstandard

from schemas.errors import SchemaError

Array = np.ndarray[Any, np.dtype[Any]]
Encoding = Literal["RAW", "ZSTD"]

MAX_DIMENSIONS = 16
MAX_TENSOR_BYTES = 64 << 20
ZSTD_LEVEL = 1

# Little-endian numbers only: no objects, strings or dates, whose bytes would be
# pointers or need a locale.
_DTYPE = re.compile(r"(\|b1|\|[iu]1|<[iu][248]|<f[248]|<c(8|16))")


@dataclass(frozen=True, slots=True)
class Tensor:
    """An n-dimensional array as it travels.

    Attributes:
        dtype: numpy's string of a little-endian number, as ``"<f4"``.
        shape: the sizes, outermost first; C order.
        encoding: ``RAW`` (the array's bytes) or ``ZSTD`` (those, compressed).
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
        data = self.data if self.encoding == "RAW" else _decompress(self, expected)
        if len(data) != expected:
            raise SchemaError(
                f"tensor {self.dtype}{list(self.shape)}: expected {expected} "
                f"bytes, found {len(data)}"
            )
        return np.frombuffer(data, self.dtype).reshape(self.shape)

    def __repr__(self) -> str:
        """Leave the bytes out: they would drown a log."""
        return f"Tensor({self.dtype}{list(self.shape)} {self.encoding})"


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


def _decompress(tensor: Tensor, expected: int) -> bytes:
    # The frame's own claim of its size is not believed: the header's is the cap.
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(tensor.data)
        return reader.read(expected + 1)
    except zstandard.ZstdError as exc:
        raise SchemaError(f"tensor data: expected zstd, found {exc}") from exc


def pack(array: Any, encoding: Encoding = "RAW") -> Tensor:
    """Return ``array`` as a Tensor, bit-exact.

    Raises:
        SchemaError: the dtype has no place on the wire.
    """
    values = np.asarray(array)
    if values.dtype.byteorder == ">":
        values = values.astype(values.dtype.newbyteorder("<"))
    dtype = values.dtype.str
    data = values.tobytes()
    if encoding == "ZSTD":
        data = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)
    tensor = Tensor(dtype, tuple(values.shape), encoding, data)
    check_header(tensor)
    return tensor


def pack_map(
    arrays: Mapping[str, Any], encoding: Encoding = "RAW"
) -> dict[str, Tensor]:
    """Pack each array of a mapping."""
    return {name: pack(array, encoding) for name, array in arrays.items()}
