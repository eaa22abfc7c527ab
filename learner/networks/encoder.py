"""Observation fields -> one row of float32 features each."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from learner.networks.images import ImpalaResnet, NatureCnn
from learner.networks.spaces import UnsupportedSpace
from schemas.images import encoder_of, image_of, image_problems, scaled_inputs
from schemas.records import SpaceField
from schemas.sizes import flat_size

_CONVOLUTIONS: dict[str, type[NatureCnn] | type[ImpalaResnet]] = {
    "nature": NatureCnn,
    "impala": ImpalaResnet,
}


class Encoder(nn.Module):
    """Observation fields -> one float32 row each: [N, features].

    Fields are joined in the order of the description. Images go through an encoder of
    their own. Of all else uint8 boxes are divided by 255, discrete values become
    one-hot, others are cast; then ``observation_scale``.

    Attributes:
        features: how many.
        scale: [features]; 1 for what images become.
    """

    def __init__(
        self,
        fields: tuple[SpaceField, ...],
        observation_scale: tuple[float, ...] = (),
        image_encoder: str = "flat",
    ) -> None:
        """Make one.

        Raises:
            UnsupportedSpace: an image or the scale is of no fitting size, or there is
                no image for an encoder that was asked for.
        """
        super().__init__()
        for problem in image_problems(fields, image_encoder):
            raise UnsupportedSpace(f"learner.network.imageEncoder: {problem}")
        self._names = [field.name for field in fields]
        encoders = [_encoder(field, image_encoder) for field in fields]
        self.encoders = nn.ModuleList(encoders)
        self.features = sum(encoder.features for encoder in encoders)
        is_scaled = torch.cat([
            torch.full((encoder.features,), image_of(field) is None)
            for field, encoder in zip(fields, encoders, strict=True)
        ])  # fmt: skip
        scale = torch.ones(self.features)
        scale[is_scaled] = _numbers(observation_scale, scaled_inputs(fields))
        self.register_buffer("scale", scale)
        self.scale: Tensor
        self._scales = any(factor != 1 for factor in observation_scale)

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Return the features of observations [N, ...]."""
        parts = [
            encoder(observations[name])
            for name, encoder in zip(self._names, self.encoders, strict=True)
        ]
        joined: Tensor = torch.cat(parts, 1) if parts[1:] else parts[0]
        return joined * self.scale if self._scales else joined


class Flat(nn.Module):
    """One field -> its numbers in a row: [N, features]."""

    def __init__(self, field: SpaceField) -> None:
        super().__init__()
        self._field = field
        self.features = flat_size(field)

    def forward(self, values: Tensor) -> Tensor:
        """Return the numbers of observations [N, ...]."""
        field = self._field
        if field.kind in ("discrete", "multi_discrete"):
            return _one_hot(values, field)
        flat = values.flatten(1) if field.shape else values[:, None]
        flat = flat.to(torch.float32)
        return flat / 255.0 if field.dtype == "|u1" else flat


def _encoder(field: SpaceField, image_encoder: str) -> NatureCnn | ImpalaResnet | Flat:
    image = image_of(field)
    if image is None:
        return Flat(field)
    image_encoder = encoder_of(image, image_encoder)
    if image_encoder not in _CONVOLUTIONS:
        return Flat(field)
    return _CONVOLUTIONS[image_encoder](image)


def _numbers(observation_scale: tuple[float, ...], inputs: int) -> Tensor:
    if len(observation_scale) not in (0, 1, inputs):
        raise UnsupportedSpace(
            f"learner.network.observationScale: expected 0, 1 or {inputs} numbers, "
            f"one for each input but images, found {len(observation_scale)}"
        )
    return torch.tensor(observation_scale or (1.0,)).expand(inputs)


def _one_hot(values: Tensor, field: SpaceField) -> Tensor:
    """One-hot each value; one outside its range becomes a row of zeros."""
    columns = values.reshape(-1, max(1, math.prod(field.shape))).to(torch.int64)
    width = columns.shape[1]
    sizes = field.n * (width // len(field.n))
    starts = (field.start or (0,) * len(field.n)) * (width // len(field.n))
    hot = [
        (columns[:, i, None] - starts[i]) == torch.arange(n, device=columns.device)
        for i, n in enumerate(sizes)
    ]
    return torch.cat(hot, 1).to(torch.float32)
