"""Which observation fields are images, and how large encoders want them; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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
        channels: of all frames of the stack together, the frames outermost.
        channels_last: whether a frame's channels come behind height and width.
    """

    height: int
    width: int
    channels: int
    channels_last: bool


def image_of(field: SpaceField) -> Image | None:
    """Return how a field is an image; None: it is none.

    Images are boxes of uint8: [H, W], [H, W, C] with 1, 3 or 4 channels, [C, H, W],
    and stacks of them with the frames first. [C, H, W] is read as a stack of [H, W],
    which comes to the same thing; any number may come first. So (84, 84, 12), frames
    that were stacked as channels, is 84 channels of 84 x 12: stack with
    ``env.frameStack``, or put them first.
    """
    shape = field.shape
    if field.kind != "box" or field.dtype != "|u1" or len(shape) not in (2, 3, 4):
        return None
    if len(shape) > 2 and shape[-1] in _CHANNELS:
        frames = shape[0] if len(shape) == 4 else 1
        return Image(shape[-3], shape[-2], frames * shape[-1], channels_last=True)
    channels, (height, width) = math.prod(shape[:-2]), shape[-2:]
    return Image(height, width, channels, channels_last=False)


def encoder_of(image: Image, encoder: str) -> str:
    """Return the encoder that the spec's stands for: ``auto`` is one that fits."""
    if encoder != "auto":
        return encoder
    fits = min(image.height, image.width) >= LEAST_SIZE["nature"]
    return "nature" if fits else "flat"


def image_problems(fields: Sequence[SpaceField], encoder: str) -> list[str]:
    """Return why an encoder of the spec cannot take observations, stacked.

    Fields that are no images are not its own; but one that was asked for by name and
    would see nothing is refused.
    """
    images = [(field, image) for field in fields if (image := image_of(field))]
    if not images and encoder in ("nature", "impala"):
        found = ", ".join(
            f"{field.name!r} {field.kind} {field.dtype} {list(field.shape)}"
            for field in fields
        )
        return [
            f"expected an image for {encoder}, uint8 of [height, width], [height, "
            "width, channels] with 1, 3 or 4 of them, [channels, height, width], or a "
            f"stack of such, found {found}: auto and flat take anything"
        ]
    problems = [_size_problem(field, image, encoder) for field, image in images]
    return [problem for problem in problems if problem]


def _size_problem(field: SpaceField, image: Image, encoder: str) -> str | None:
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
