"""Bytes <-> fewer bytes; what is opened never becomes larger than it was said to be."""

from __future__ import annotations

import lz4.block
import zstandard

from schemas.errors import SchemaError

ZSTD_LEVEL = 1
"""Of whole tensors: archives make the same bytes again, and so it stays."""

FAST_LEVEL = -1
"""Of differences: the same size as level 1 on frames, in two thirds of the time."""

# How far back a frame may look, which is memory that it asks for: as level 19 does for
# streams; a level that knows the size looks back at most twice as far.
_LEAST_WINDOW_BYTES = 8 << 20

Buffer = bytes | memoryview


def zstd(data: Buffer, level: int = ZSTD_LEVEL) -> bytes:
    """Compress by zstd."""
    return zstandard.ZstdCompressor(level=level).compress(data)


def zstd_opened(data: bytes, size: int) -> bytes:
    """Return at most ``size`` + 1 bytes of what was compressed.

    Raises:
        SchemaError: it is no zstd.
    """
    # The frame's own claim of its size is not believed: the header's is the cap.
    try:
        window_bytes = max(_LEAST_WINDOW_BYTES, 2 * size)
        decompressor = zstandard.ZstdDecompressor(max_window_size=window_bytes)
        return decompressor.stream_reader(data).read(size + 1)
    except zstandard.ZstdError as exc:
        raise SchemaError(f"tensor data: expected zstd, found {exc}") from exc


def lz4_block(data: Buffer) -> bytes:
    """Compress to one block of LZ4, without its size."""
    found: bytes = lz4.block.compress(data, store_size=False)
    return found


def lz4_opened(data: bytes, size: int) -> bytes:
    """Return what was compressed, at most ``size`` bytes.

    Raises:
        SchemaError: it is no LZ4, or more than that.
    """
    try:
        found: bytes = lz4.block.decompress(data, uncompressed_size=size)
    except lz4.block.LZ4BlockError as exc:
        raise SchemaError(
            f"tensor data: expected lz4 of {size} bytes, found {exc}"
        ) from exc
    return found
