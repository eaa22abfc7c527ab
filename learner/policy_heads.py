"""What a network says of the policy, and what was done -> log-probabilities and more.

Pure, on tensors with any leading axes, written [...]: categorical distributions over
the actions of a Discrete, and diagonal Gaussians over those of a Box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from learner.sample import Sequences
from schemas.records import SpaceField
from schemas.tensors import Array

Outputs = Mapping[str, Tensor]
"""Of a network: ``logits`` [..., A], or ``mean`` and ``log_std`` [..., D...]."""

_LOG_2_PI = math.log(2 * math.pi)


class PolicyHead(Protocol):
    """The distributions of one action field.

    Attributes:
        name: of the head, in records.
    """

    @property
    def name(self) -> str:
        """``categorical`` or ``gaussian``."""

    def taken(self, sequences: Sequences) -> Array:
        """Return what was sampled from the behaviour policy: [L, N, ...]."""

    def log_prob(self, outputs: Outputs, taken: Tensor) -> Tensor:
        """Return log π(taken) [...]."""

    def entropy(self, outputs: Outputs) -> Tensor:
        """Return the entropy in nats [...]."""


@dataclass(frozen=True, slots=True)
class CategoricalHead:
    """Over the actions of one Discrete field; ``taken`` are those actions."""

    action: SpaceField

    @property
    def name(self) -> str:
        """Its name in records."""
        return "categorical"

    def taken(self, sequences: Sequences) -> Array:
        """Return the actions [L, N]."""
        return sequences.actions[self.action.name]

    def log_prob(self, outputs: Outputs, taken: Tensor) -> Tensor:
        """Return log π(taken) [...]."""
        first = self.action.start[0] if self.action.start else 0
        indices = (taken.to(torch.int64) - first)[..., None]
        return _log_probs(outputs).gather(-1, indices)[..., 0]

    def entropy(self, outputs: Outputs) -> Tensor:
        """Return -Σ p log p [...]."""
        log_probs = _log_probs(outputs)
        return -(log_probs.exp() * log_probs).sum(-1)


def _log_probs(outputs: Outputs) -> Tensor:
    return F.log_softmax(outputs["logits"], -1)


@dataclass(frozen=True, slots=True)
class GaussianHead:
    """Independent normal distributions over the coordinates of one Box field.

    ``taken`` are the Gaussian's own samples: an action that was clipped to its bounds
    has a density of its own, that the record's ``log_prob`` is not of.
    """

    action: SpaceField

    @property
    def name(self) -> str:
        """Its name in records."""
        return "gaussian"

    def taken(self, sequences: Sequences) -> Array:
        """Return the samples [L, N, D...]; the actions, where there are none."""
        actions = sequences.actions[self.action.name]
        return sequences.behaviour.get("sample", actions)

    def log_prob(self, outputs: Outputs, taken: Tensor) -> Tensor:
        """Return the log-density of ``taken`` [...]."""
        log_std = outputs["log_std"]
        scaled = (taken - outputs["mean"]) * (-log_std).exp()
        return self._sum(-0.5 * (scaled.square() + _LOG_2_PI) - log_std)

    def entropy(self, outputs: Outputs) -> Tensor:
        """Return the differential entropy [...]."""
        return self._sum(outputs["log_std"] + 0.5 * (1 + _LOG_2_PI))

    def _sum(self, values: Tensor) -> Tensor:
        """Add up the coordinates of the action."""
        axes = len(self.action.shape)
        return values.flatten(-axes).sum(-1) if axes else values


def rows_of(outputs: Outputs, chosen: Tensor) -> dict[str, Tensor]:
    """Return some rows [K, ...] of what a network says of a stretch [L, N, ...].

    Recurrent states are not of rows, and left out.

    Args:
        outputs: as the network's ``unroll`` gives them.
        chosen: [at most L, N] bool.
    """
    return {
        name: output[: len(chosen)][chosen]
        for name, output in outputs.items()
        if not name.startswith("next_state/")
    }


def policy_head(action: SpaceField) -> CategoricalHead | GaussianHead:
    """Return the head for an action that ``learner.networks`` has accepted."""
    return (
        CategoricalHead(action) if action.kind == "discrete" else GaussianHead(action)
    )
