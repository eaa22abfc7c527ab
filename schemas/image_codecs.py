"""Images <-> JPEG XL or WebP, one by one, by the optional package imagecodecs.

The bytes are how long each image's are (32 bits, little-endian), then those. A channel
of a fourth is an image of its own: four are, as a rule, frames that were stacked.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from schemas.errors import SchemaError

Array = np.ndarray[Any, np.dtype[Any]]

LEAD = 2
"""Dimensions before those of one observation: T + 1 and B."""

_MISSING = (
    "imagecodecs is not installed: JPEG XL and WebP need "
    "pip install 'rollstream[images]' wherever they are read or written"
)
_LOSSLESS = 100
_PLANES = 4
_CHANNELS = (1, 3, _PLANES)
_SIZE = np.dtype("<u4")
# The fastest, and the fastest that looks at what it may leave out.
_EFFORT_LOSSLESS, _EFFORT_LOSSY = 1, 3


def are_images(dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether elements of a tensor [T + 1, B, ...] can be taken for images.

    They are, as in `schemas.images`, uint8 of [H, W], [H, W, C] with 1, 3 or 4
    channels, and any number of those.
    """
    element = shape[LEAD:]
    return dtype == "|u1" and len(element) >= 2 and math.prod(element) > 0


def encode_images(array: Array, encoding: str, quality: int) -> bytes:
    """Return the bytes of all images.

    Args:
        array: for which ``are_images`` holds.
        encoding: ``JPEGXL`` or ``WEBP``.
        quality: 1 to 99; 100 loses nothing.

    Raises:
        ModuleNotFoundError: imagecodecs is not installed.
    """
    encode = _encode_jpegxl if encoding == "JPEGXL" else _encode_webp
    blobs = [encode(image, quality) for image in _images(array)]
    sizes = np.array([len(blob) for blob in blobs], _SIZE)
    return b"".join([sizes.tobytes(), *blobs])


def decode_images(
    data: bytes, dtype: str, shape: tuple[int, ...], encoding: str
) -> Array:
    """Return the array of all images; its size is known before any is opened.

    Raises:
        SchemaError: the bytes do not hold these images.
        ModuleNotFoundError: imagecodecs is not installed.
    """
    if not are_images(dtype, shape):
        raise SchemaError(
            f"tensor {dtype}{list(shape)}: expected images for {encoding}, uint8 of "
            "at least [height, width]"
        )
    found = np.empty(shape, np.uint8)
    images = _images(found)
    for image, blob in zip(images, _blobs(data, len(images)), strict=True):
        _decode(blob, image, encoding)
    if not np.shares_memory(images, found):
        found[...] = np.moveaxis(_planes_of(images, shape), LEAD, -1)
    return found


def _images(array: Array) -> Array:
    """Return [N, H, W] or [N, H, W, 3]; a view unless there are four channels."""
    shape = array.shape
    if len(shape) - LEAD > 2 and shape[-1] in _CHANNELS:
        if shape[-1] == _PLANES:
            planes = np.ascontiguousarray(np.moveaxis(array, -1, LEAD))
            return planes.reshape(-1, *shape[-3:-1])
        one = shape[-3:-1] if shape[-1] == 1 else shape[-3:]
        return array.reshape(-1, *one)
    return array.reshape(-1, *shape[-2:])


def _planes_of(images: Array, shape: tuple[int, ...]) -> Array:
    """Undo the order of four channels; [T + 1, B, 4, ...]."""
    return images.reshape(*shape[:LEAD], _PLANES, *shape[LEAD:-1])


def _blobs(data: bytes, count: int) -> list[bytes]:
    head = count * _SIZE.itemsize
    if len(data) < head:
        raise SchemaError(
            f"tensor data: expected the sizes of {count} images, found {len(data)} "
            "bytes"
        )
    sizes = np.frombuffer(data, _SIZE, count).astype(np.int64)
    ends = head + np.cumsum(sizes)
    if ends[-1] != len(data):
        raise SchemaError(
            f"tensor data: expected {ends[-1]} bytes of {count} images, found "
            f"{len(data)}"
        )
    starts = ends - sizes
    return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def _encode_jpegxl(image: Array, quality: int) -> bytes:
    how: dict[str, Any] = {"lossless": True, "effort": _EFFORT_LOSSLESS}
    if quality < _LOSSLESS:  # libjxl's own mapping of qualities
        distance = 0.1 + (_LOSSLESS - quality) * 0.09
        how = {"distance": distance, "effort": _EFFORT_LOSSY}
    return bytes(_codecs().jpegxl_encode(image, numthreads=1, **how))


def _encode_webp(image: Array, quality: int) -> bytes:
    if image.ndim == 2:  # it has colours only
        image = np.repeat(image[..., None], 3, axis=-1)
    is_lossless = quality == _LOSSLESS
    level = 0 if is_lossless else quality
    image = np.ascontiguousarray(image)
    return bytes(_codecs().webp_encode(image, level=level, lossless=is_lossless))


def _decode(blob: bytes, image: Array, encoding: str) -> None:
    """Open one image into its place: another size is refused before it is opened."""
    codecs = _codecs()
    try:
        if encoding == "JPEGXL":
            codecs.jpegxl_decode(blob, out=image, numthreads=1)
        elif image.ndim == 2:
            colours = np.empty((*image.shape, 3), np.uint8)
            codecs.webp_decode(blob, out=colours, hasalpha=False)
            image[...] = colours[..., 1]
        else:
            codecs.webp_decode(blob, out=image, hasalpha=False)
    except Exception as exc:  # whatever its codecs run into
        raise SchemaError(f"tensor data: expected {encoding}, found {exc!r}") from exc


def missing_codecs(fields: Collection[str]) -> str | None:
    """Return what keeps this machine from packing ``fields`` as images, if any are."""
    if not fields or find_spec("imagecodecs") is not None:
        return None
    return f"spec.workers.encoding: {_MISSING}"


@cache
def _codecs() -> Any:
    """Return the package; half a second to import, and so only where it is needed."""
    try:
        import imagecodecs
    except ModuleNotFoundError as exc:
        raise ModuleNotFoundError(_MISSING) from exc
    return imagecodecs
