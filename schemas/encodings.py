"""How the numbers of a tensor may be packed: the names of it, here and on the wire."""

from __future__ import annotations

from typing import Literal, get_args

from schemas.errors import SchemaError

Encoding = Literal[
    "RAW", "ZSTD", "LZ4", "ZSTD_DELTA", "LZ4_DELTA", "JPEGXL", "WEBP"
]  # fmt: skip
"""RAW: the array's bytes. ZSTD, LZ4: those, compressed. ZSTD_DELTA, LZ4_DELTA: their
differences along the first axis, see `schemas.deltas`. JPEGXL, WEBP: each image by
itself, see `schemas.image_codecs`, where numbers may be lost."""

ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
LOSSY = frozenset({"JPEGXL", "WEBP"})
"""Those that may give back other numbers than they were given."""

# The enum of the first schemas has no default for readers that do not know a symbol,
# and so can never grow. What came later has a field of its own, beside RAW: who reads
# by the first schemas finds bytes of another size than RAW has, and refuses them.
_IN_FIRST_SCHEMAS = frozenset({"RAW", "ZSTD"})
PLAIN = "AS_ENCODED"


def to_wire(encoding: str) -> tuple[str, str]:
    """Return the fields ``encoding`` and ``codec`` of a Tensor's schema."""
    if encoding in _IN_FIRST_SCHEMAS:
        return encoding, PLAIN
    return "RAW", encoding


def from_wire(encoding: str, codec: str) -> Encoding:
    """Return the encoding that the two fields stand for.

    Raises:
        SchemaError: they contradict each other, or a later version knows more.
    """
    found = encoding if codec == PLAIN else codec
    if found not in ENCODINGS or to_wire(found) != (encoding, codec):
        raise SchemaError(
            f"tensor encoding: expected one of {', '.join(ENCODINGS)}, found "
            f"{encoding} with the codec {codec}"
        )
    return found
