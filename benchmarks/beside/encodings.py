"""How small a state becomes, and what that takes, by kind and by encoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.beside.frames import recording
from benchmarks.beside.peer_side import own_process
from benchmarks.beside.section import OURS, Figure, Goal, Place, Section, Side

RAW = "raw"
THEIR_SHARE = 3.2 / 12
"""What is said of others: 12 kB a state become 3.2."""

_LOSSLESS = ("lz4", "zstd", "lz4-delta", "zstd-delta")
_IMAGES = (("jpegxl", 100), ("jpegxl", 90), ("webp", 100), ("webp", 90))


def _side(name: str, default: str, images: str = "", quality: int = 100) -> Side:
    def job(place: Place) -> dict[str, Any]:
        return {
            "default": default,
            "images": images,
            "quality": quality,
            "seconds": 0.1 if place.quick else 1.0,
            "directory": recording(place),
        }

    side = own_process(name, "benchmarks.encoding_side", job)
    return replace(side, is_ours=name == OURS)


def _sides() -> Iterator[Side]:
    yield _side(OURS, "auto")
    yield _side(RAW, "raw")
    for name in _LOSSLESS:
        yield _side(name, name)
    for images, quality in _IMAGES:
        said = "without loss" if quality == 100 else f"of quality {quality}"
        yield _side(f"{images} {said}", "raw", images, quality)


ENCODINGS = Section(
    name="encodings",
    title="What a state becomes on the wire, and what that takes",
    text=(
        "Unrolls of 32 steps of 16 environments, in one process. Structured: "
        "HalfCheetah's 17 doubles under random actions, which hardly anything makes "
        "smaller. Image: 84 x 84 grey frames of Pong, Breakout and Seaquest. Mixed: "
        "both, in a Dict. `rollstream` is what `auto` chooses for each field. Image "
        "codecs see one frame at a time, and not that it repeats; beside images they "
        "leave fields raw. MB/s are raw bytes by CPU time of one core."
    ),
    figures=(
        Figure("mixed_kb", "mixed, kB a state", "low", 3),
        Figure("image_kb", "image, kB", "low", 3),
        Figure("structured_kb", "structured, kB", "low", 3),
        Figure("image_encode_mb_per_s", "image encode, MB/s", "high"),
        Figure("image_decode_mb_per_s", "image decode, MB/s", "high"),
        Figure("structured_encode_mb_per_s", "structured encode, MB/s", "high"),
        Figure("structured_decode_mb_per_s", "structured decode, MB/s", "high"),
        Figure("psnr_db", "PSNR, dB (none: no loss)", "", 1),
    ),
    sides=tuple(_sides()),
    goals=(
        Goal(
            "a mixed state in at most 3.2 of 12 kB, without loss",
            lambda m: m[OURS]["mixed_kb"] <= THEIR_SHARE * m[RAW]["mixed_kb"],
        ),
    ),
)
