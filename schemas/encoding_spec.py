"""How observations are packed on their way to the log, as a spec says it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.encodings import LOSSY, Encoding
from schemas.spec_part import Part

Lossless = Literal["auto", "raw", "lz4", "zstd", "lz4-delta", "zstd-delta"]
OfField = Literal[
    "auto", "raw", "lz4", "zstd", "lz4-delta", "zstd-delta", "jpegxl", "webp"
]

AUTO = "auto"


class EncodingSpec(Part):
    """How a worker packs observations; they stay so to the learner.

    ``auto``: what cost least, in bytes and CPU time, on the first records of a worker.
    ``-delta``: differences from one step to the next. Only ``jpegxl`` and ``webp`` lose
    anything, and are only used where a field names them.
    """

    default: Lossless = Field(
        "auto",
        description="Of fields that are not named; auto: as the first records say.",
    )
    fields: dict[str, OfField] = Field(
        {},
        max_length=256,
        description="By the field's name, as in `camera/left`; a plain space's is "
        "empty. jpegxl and webp: images alone, of which they lose what quality says.",
        examples=[{"pixels": "zstd-delta"}],
    )
    quality: int = Field(
        90,
        ge=1,
        le=100,
        description="Of jpegxl and webp; 100 loses nothing. What is lost is an event "
        "of each worker's start.",
    )

    def of(self, name: str) -> Encoding | None:
        """Return how a field is packed; None: as measured."""
        said = self.fields.get(name, self.default)
        return None if said == AUTO else encoding_of(said)

    @property
    def lossy(self) -> dict[str, str]:
        """Return the fields that lose something, and how."""
        found = self.fields.items()
        return {name: said for name, said in found if encoding_of(said) in LOSSY}


def encoding_of(said: str) -> Encoding:
    """Return what a spec's word for an encoding is on the wire."""
    return said.upper().replace("-", "_")  # type: ignore[return-value]
