"""Observations and an action -> its value: SAC's critics."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from learner.networks.encoder import Encoder
from learner.networks.layers import mlp
from schemas.experiment import NetworkSpec
from schemas.records import SpaceField


class ActionValueNetwork(nn.Module):
    """The value [N] of observations [N, ...] and actions [N, D] in [-1, 1].

    The action joins what the encoder makes of the observations.
    """

    def __init__(
        self,
        observation: tuple[SpaceField, ...],
        action: SpaceField,
        spec: NetworkSpec,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(observation, spec.observation_scale, spec.image_encoder)
        inputs = self.encoder.features + math.prod(action.shape)
        self.body = mlp(inputs, spec.hidden, spec.activation)
        self.head = nn.Linear(spec.hidden[-1] if spec.hidden else inputs, 1)

    def forward(self, observations: Mapping[str, Tensor], action: Tensor) -> Tensor:
        """Return the values; an action [N, D...] is flattened."""
        features = self.encoder(observations)
        inputs = torch.cat([features, action.reshape(len(features), -1)], 1)
        values: Tensor = self.head(self.body(inputs))
        return values.squeeze(-1)
