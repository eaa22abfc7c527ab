"""Observations -> the value of each action, or its distribution."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from learner.networks.torso import NO_STATES, Torso, next_states
from schemas.experiment import NetworkSpec
from schemas.records import SpaceField


class QNetwork(nn.Module):
    """From observations to the value of each action: ``q`` [N, actions].

    Dueling: V + A - mean A, https://arxiv.org/abs/1511.06581.

    Attributes:
        atoms: numbers that say an action's value.
        support: of a categorical distribution, the values of its atoms; else None.
        states: the fields of the recurrent state.
    """

    support: Tensor | None

    def __init__(
        self,
        observation: tuple[SpaceField, ...],
        num_actions: int,
        spec: NetworkSpec,
        atoms: int = 1,
        support: tuple[float, float] | None = None,
    ) -> None:
        """Make one.

        Args:
            observation: the fields, stacked.
            num_actions: A.
            spec: the network's.
            atoms: of a distribution; 1: the mean alone.
            support: the least and the greatest value of a categorical distribution,
                whose ``values`` are logits; None: they are quantiles.
        """
        super().__init__()
        torso = Torso(observation, spec)
        # Its parts under the names that older checkpoints have. In a tuple it is no
        # module of this one, which would give them a second name.
        self._torso = (torso,)
        self.encoder, self.body, self.core = torso.encoder, torso.body, torso.core
        self._dueling = spec.dueling
        self.atoms = atoms
        self.states = torso.states
        self.head = nn.Linear(torso.features, (num_actions + spec.dueling) * atoms)
        values = None if support is None else torch.linspace(*support, atoms)
        self.register_buffer("support", values)

    @property
    def torso(self) -> Torso:
        """What comes before the head."""
        return self._torso[0]

    def forward(
        self,
        observations: Mapping[str, Tensor],
        states: Mapping[str, Tensor] = NO_STATES,
    ) -> dict[str, Tensor]:
        """Return ``q`` [N, A] of observations [N, ...], and ``next_state/<name>``."""
        features, after = self.torso(observations, states)
        return {"q": self.q(features)} | next_states(after)

    def values(self, features: Tensor) -> Tensor:
        """Return [.., A, atoms] of features [.., F]: logits, or quantiles."""
        values: Tensor = self.head(features).unflatten(-1, (-1, self.atoms))
        if self._dueling:
            value, advantages = values[..., :1, :], values[..., 1:, :]
            values = value + advantages - advantages.mean(-2, keepdim=True)
        return values

    def q(self, features: Tensor) -> Tensor:
        """Return the mean values [.., A] of features [.., F]."""
        if self.atoms == 1 and not self._dueling:
            # What ``means`` makes of ``values`` then, two steps sooner: who acts does
            # little else.
            q: Tensor = self.head(features)
            return q
        return self.means(self.values(features))

    def means(self, values: Tensor) -> Tensor:
        """Return the means [.., A] of what ``values`` returned [.., A, atoms]."""
        if self.support is not None:
            return (values.softmax(-1) * self.support).sum(-1)
        return values.mean(-1) if self.atoms > 1 else values.squeeze(-1)
