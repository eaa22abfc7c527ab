"""Observations -> the Gaussian whose samples SAC squashes by tanh."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from learner.networks.policy_value import shaped
from learner.networks.torso import NO_STATES, Torso, next_states
from schemas.experiment import NetworkSpec
from schemas.records import SpaceField

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


class SquashedGaussianPolicy(nn.Module):
    """``mean`` and ``log_std`` [N, D...], of the sample before tanh.

    https://arxiv.org/abs/1812.05905. ``log_std`` is bent into its bounds by a tanh:
    cut off, it would have no gradient that leads back.

    Attributes:
        states: the fields of the recurrent state.
    """

    def __init__(
        self,
        observation: tuple[SpaceField, ...],
        action: SpaceField,
        spec: NetworkSpec,
    ) -> None:
        super().__init__()
        self.torso = Torso(observation, spec)
        self.states = self.torso.states
        self._shape = action.shape
        self.head = nn.Linear(self.torso.features, 2 * math.prod(action.shape))

    def forward(
        self,
        observations: Mapping[str, Tensor],
        states: Mapping[str, Tensor] = NO_STATES,
    ) -> dict[str, Tensor]:
        """Return the outputs of observations [N, ...], and ``next_state/<name>``."""
        features, after = self.torso(observations, states)
        mean, bent = self.head(features).chunk(2, -1)
        middle, half = (LOG_STD_MAX + LOG_STD_MIN) / 2, (LOG_STD_MAX - LOG_STD_MIN) / 2
        log_std = middle + half * torch.tanh(bent)
        outputs = {
            "mean": shaped(mean, self._shape),
            "log_std": shaped(log_std, self._shape),
        }
        return outputs | next_states(after)
