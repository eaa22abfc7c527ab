"""Observations in the space's own dtypes -> q values: what learners train, workers run.

Casting, one-hot, scaling and clipping happen in here and nowhere else, so that the
exported actor and the trained network cannot differ.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from schemas.experiment import NetworkSpec
from schemas.records import EnvDescription, SpaceField
from schemas.sizes import flat_size

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}
_NO_STATES: Mapping[str, Tensor] = {}


class UnsupportedSpace(ValueError):
    """An algorithm cannot act in, or see, such an environment."""


class Encoder(nn.Module):
    """Observation fields -> one float32 row each: [N, features].

    Fields are joined in the order of the description; uint8 boxes are divided by 255,
    discrete values become one-hot, all others are cast; then ``observation_scale``.
    """

    def __init__(
        self, fields: tuple[SpaceField, ...], observation_scale: tuple[float, ...]
    ) -> None:
        super().__init__()
        self._fields = fields
        self.features = sum(flat_size(field) for field in fields)
        if len(observation_scale) not in (0, 1, self.features):
            raise UnsupportedSpace(
                "learner.network.observationScale: expected 0, 1 or "
                f"{self.features} numbers, found {len(observation_scale)}"
            )
        scale = torch.tensor(observation_scale or (1.0,)).expand(self.features)
        self.register_buffer("scale", scale.clone())
        self.scale: Tensor

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Return the features of observations [N, ...]."""
        parts = [_flatten(observations[field.name], field) for field in self._fields]
        return torch.cat(parts, 1) * self.scale if parts[1:] else parts[0] * self.scale


def _flatten(values: Tensor, field: SpaceField) -> Tensor:
    if field.kind in ("discrete", "multi_discrete"):
        return _one_hot(values, field)
    flat = values.flatten(1) if field.shape else values[:, None]
    flat = flat.to(torch.float32)
    return flat / 255.0 if field.dtype == "|u1" else flat


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


class QNetwork(nn.Module):
    """An MLP from observations to the value of each action: ``q`` [N, actions].

    Dueling: V + A - mean A.
    """

    def __init__(
        self,
        observation: tuple[SpaceField, ...],
        num_actions: int,
        spec: NetworkSpec,
    ) -> None:
        super().__init__()
        self._dueling = spec.dueling
        self.encoder = Encoder(observation, spec.observation_scale)
        width, layers = self.encoder.features, list[nn.Module]()
        for hidden in spec.hidden:
            layers += [nn.Linear(width, hidden), _ACTIVATIONS[spec.activation]()]
            width = hidden
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, num_actions + spec.dueling)

    def forward(
        self,
        observations: Mapping[str, Tensor],
        states: Mapping[str, Tensor] = _NO_STATES,
    ) -> dict[str, Tensor]:
        """Return ``{"q": [N, actions]}``; there are no recurrent states."""
        values = self.head(self.body(self.encoder(observations)))
        if self._dueling:
            value, advantages = values[:, :1], values[:, 1:]
            values = value + advantages - advantages.mean(1, keepdim=True)
        return {"q": values}


def discrete_action(env: EnvDescription, algorithm: str) -> SpaceField:
    """Return the one discrete action field that algorithms over q values need.

    Raises:
        UnsupportedSpace: the environment's actions are anything else.
    """
    kinds = [f"{f.kind} {f.name!r} {list(f.shape)}" for f in env.action]
    if len(env.action) != 1 or env.action[0].kind != "discrete" or env.action[0].shape:
        raise UnsupportedSpace(
            f"learner.algorithm: {algorithm} expects one Discrete action, "
            f"{env.env_id} has {', '.join(kinds) or 'none'}"
        )
    return env.action[0]
