"""Images as uint8 -> features: the two encoders of the field.

Both take what `schemas.images` calls an image, with the frames of a stack as channels,
and divide by 255, once.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.images import Image

_BYTE = 255.0


class NatureCnn(nn.Sequential):
    """Three convolutions and a layer: https://doi.org/10.1038/nature14236."""

    features = 512

    def __init__(self, image: Image) -> None:
        convolutions = nn.Sequential(
            nn.Conv2d(image.channels, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
        )
        sizes = (_nature_size(image.height), _nature_size(image.width))
        super().__init__(
            _Pixels(image),
            convolutions,
            nn.Flatten(),
            nn.Linear(64 * math.prod(sizes), self.features),
            nn.ReLU(),
        )


def _nature_size(pixels: int) -> int:
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        pixels = (pixels - kernel) // stride + 1
    return pixels


class ImpalaResnet(nn.Sequential):
    """Three sections of two residual blocks: https://arxiv.org/abs/1802.01561."""

    features = 256

    def __init__(self, image: Image) -> None:
        sections, channels, sizes = list[nn.Module](), image.channels, 1
        for wide in (16, 32, 32):
            sections.append(_section(channels, wide))
            channels = wide
        for pixels in (image.height, image.width):
            sizes *= math.ceil(pixels / 8)  # halved three times, each rounded up
        super().__init__(
            _Pixels(image),
            *sections,
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(channels * sizes, self.features),
            nn.ReLU(),
        )


def _section(channels: int, wide: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, wide, 3, padding=1),
        nn.MaxPool2d(3, 2, padding=1),
        _Residual(wide),
        _Residual(wide),
    )


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self.first(F.relu(inputs))
        changed: Tensor = self.second(F.relu(hidden))
        return inputs + changed


class _Pixels(nn.Module):
    """Images in their field's layout [N, ...] -> [N, channels, height, width]."""

    def __init__(self, image: Image) -> None:
        super().__init__()
        self._image = image

    def forward(self, pixels: Tensor) -> Tensor:
        image = self._image
        if image.channels_last:
            pixels = pixels.movedim(-1, -3)
        # The number of rows is left to torch: an exporter must not fix it.
        pixels = pixels.reshape(-1, image.channels, image.height, image.width)
        return pixels.to(torch.float32) / _BYTE
