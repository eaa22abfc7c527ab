"""Observations -> the distribution of the action, and the value: PPO and IMPALA."""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from learner.networks.layers import orthogonal
from learner.networks.torso import NO_STATES, Torso, next_states
from schemas.experiment import NetworkSpec
from schemas.records import SpaceField

_OF_VALUE = "value_"
_HIDDEN_GAIN, _POLICY_GAIN, _VALUE_GAIN = math.sqrt(2), 0.01, 1.0
"""A policy that begins near uniform, or with means near 0."""


class PolicyValueNetwork(nn.Module):
    """``logits`` [N, A] or ``mean``, ``log_std`` [N, D...]; and ``value`` [N].

    Policy and value have torsos of their own, unless the spec says otherwise: values as
    large as returns would else push a shared LSTM into saturation, and the policy with
    it. The states of the value's are named ``value_h`` and ``value_c``. The deviation
    of a box's Gaussian depends on no observation. Weights begin orthogonal, biases
    zero: https://arxiv.org/abs/2005.12729.

    Attributes:
        torso: the policy's.
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
        apart = spec.separate_value
        self.value_torso = Torso(observation, spec) if apart else None
        of_value = self.value_torso.states if self.value_torso else ()
        self.states = self.torso.states + tuple(
            replace(field, name=_OF_VALUE + field.name) for field in of_value
        )
        self._shape = action.shape if action.kind == "box" else None
        outputs = action.n[0] if self._shape is None else math.prod(self._shape)
        self.policy_head = nn.Linear(self.torso.features, outputs)
        self.value_head = nn.Linear(self.torso.features, 1)
        if self._shape is not None:
            self.log_std = nn.Parameter(torch.zeros(self._shape))
        self._initialise()

    def _initialise(self) -> None:
        for torso in filter(None, (self.torso, self.value_torso)):
            orthogonal(torso, _HIDDEN_GAIN)
            if torso.core is not None:
                orthogonal(torso.core, 1.0)
        orthogonal(self.policy_head, _POLICY_GAIN)
        orthogonal(self.value_head, _VALUE_GAIN)

    def forward(
        self,
        observations: Mapping[str, Tensor],
        states: Mapping[str, Tensor] = NO_STATES,
    ) -> dict[str, Tensor]:
        """Return the outputs of observations [N, ...], and ``next_state/<name>``."""
        features, after = self.torso(observations, states)
        of_value = features
        if self.value_torso is not None:
            of_value, others = self.value_torso(observations, _unprefixed(states))
            after |= _prefixed(others)
        return self._heads(features, of_value) | next_states(after)

    def unroll(
        self,
        observations: Mapping[str, Tensor],
        states: Mapping[str, Tensor],
        valid: Tensor,
    ) -> dict[str, Tensor]:
        """Return [L, N, ...] of observations [L, N, ...], as `Torso.unroll` does."""
        features, after = self.torso.unroll(observations, states, valid)
        of_value = features
        if self.value_torso is not None:
            of_value, others = self.value_torso.unroll(
                observations, _unprefixed(states), valid
            )
            after |= _prefixed(others)
        return self._heads(features, of_value) | next_states(after)

    def _heads(self, features: Tensor, of_value: Tensor) -> dict[str, Tensor]:
        policy: Tensor = self.policy_head(features)
        value: Tensor = self.value_head(of_value).squeeze(-1)
        if self._shape is None:
            return {"logits": policy, "value": value}
        mean = shaped(policy, self._shape)
        # Added, not expanded: without gradients a view of a parameter still wants some.
        log_std = torch.zeros_like(mean) + self.log_std
        return {"mean": mean, "log_std": log_std, "value": value}


def _prefixed(states: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {_OF_VALUE + name: state for name, state in states.items()}


def _unprefixed(states: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(_OF_VALUE): state
        for name, state in states.items()
        if name.startswith(_OF_VALUE)
    }


def shaped(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return [.., product of shape] as [.., *shape]."""
    return values.reshape(*values.shape[:-1], *shape)
