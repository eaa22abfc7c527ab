"""Which observation fields are images, and how large encoders want them; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.records import SpaceField
from schemas.sizes import flat_size

_CHANNELS = (1, 3, 4)

LEAST_SIZE = {"nature": 36, "impala": 8, "flat": 1}
"""By encoder: the height and width from which its last layer has something to see."""


@dataclass(frozen=True, slots=True)
class Image:
    """What an image field holds, its stack or channels joined.

    Attributes:
        channels: of all frames of the stack together.
        channels_last: whether a frame's channels come behind height and width.
    """

    height: int
    width: int
    channels: int
    channels_last: bool


def image_of(field: SpaceField) -> Image | None:
    """Return how a field is an image; None: it is none.

    Images are boxes of uint8: [H, W], [H, W, C] with 1, 3 or 4 channels, and stacks
    of both with the frames first. So [C, H, W] is read as a stack, which comes to the
    same thing.
    """
    shape = field.shape
    if field.kind != "box" or field.dtype != "|u1" or len(shape) not in (2, 3, 4):
        return None
    if len(shape) == 2:
        return Image(*shape, channels=1, channels_last=False)
    if shape[-1] in _CHANNELS:
        frames = shape[0] if len(shape) == 4 else 1
        return Image(shape[-3], shape[-2], frames * shape[-1], channels_last=True)
    if len(shape) == 3:
        return Image(shape[1], shape[2], shape[0], channels_last=False)
    return None


def encoder_of(image: Image, encoder: str) -> str:
    """Return the encoder that the spec's stands for: ``auto`` is one that fits."""
    if encoder != "auto":
        return encoder
    fits = min(image.height, image.width) >= LEAST_SIZE["nature"]
    return "nature" if fits else "flat"


def image_problem(field: SpaceField, encoder: str) -> str | None:
    """Return why an encoder of the spec cannot take a field; None: it can."""
    image = image_of(field)
    if image is None:
        return None
    encoder = encoder_of(image, encoder)
    least = LEAST_SIZE[encoder]
    if min(image.height, image.width) >= least:
        return None
    return (
        f"expected images of at least {least} x {least} for {encoder}, found "
        f"{image.height} x {image.width} in {field.name!r} {list(field.shape)}: flat "
        "takes any size"
    )


def scaled_inputs(fields: Iterable[SpaceField]) -> int:
    """Return how many inputs of a network ``observation_scale`` has numbers for.

    Raises:
        SchemaError: a field's kind has no place in a network.
    """
    return sum(flat_size(field) for field in fields if image_of(field) is None)
