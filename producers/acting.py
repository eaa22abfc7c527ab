"""Observations -> actions and what the policy thought, for one unroll at a time.

An actor acts for T vector steps with one policy. All that is random is drawn at once
for the unroll; what is recorded is computed at once when it is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from producers.memory import Memory
from producers.random_policy import draw
from producers.spaces import Fields
from schemas.records import NO_POLICY, PolicyRef, SpaceField
from schemas.tensors import Array


class Actor(Protocol):
    """What acts for one worker's B environments.

    No action is ever a number that is not finite, or beyond its bounds, whatever a
    policy answers.

    Attributes:
        ref: the policy, as recorded.
        memory: what it carries from step to step.
        odd: [T, B], where the last unroll's answers were not finite; None: nowhere.
    """

    ref: PolicyRef
    memory: Memory
    odd: Array | None

    def begin(self, num_steps: int, rng: np.random.Generator) -> None:
        """Get ready for an unroll of at most ``num_steps`` steps."""

    def act(self, t: int, observations: Fields) -> Fields:
        """Return the actions [B, ...] at row ``t``, from the observations there."""

    def finish(self, steps: int, observations: Fields) -> dict[str, Array]:
        """Return the behaviour columns of the ``steps`` rows there were.

        Args:
            steps: T, at most what ``begin`` was told.
            observations: those after the last row.
        """


class RandomActor:
    """Acts uniformly at random: the cold start.

    Attributes:
        memory: what the first policy will want to have seen.
    """

    ref = NO_POLICY
    odd: Array | None = None

    def __init__(
        self,
        actions: Sequence[SpaceField],
        num_envs: int,
        memory: Memory | None = None,
    ) -> None:
        self.memory = memory or Memory((), (), num_envs, 1)
        self._fields = actions
        self._num_envs = num_envs
        self._actions: dict[str, Array] = {}
        self._log_prob: Array = np.empty(0)

    def begin(self, num_steps: int, rng: np.random.Generator) -> None:
        """Draw all actions."""
        lead = (num_steps, self._num_envs)
        self._actions, self._log_prob = draw(self._fields, lead, rng)

    def act(self, t: int, observations: Fields) -> Fields:
        """Return the actions of row ``t``."""
        self.memory.see(observations)
        return {name: values[t] for name, values in self._actions.items()}

    def finish(self, steps: int, observations: Fields) -> dict[str, Array]:
        """Return ``log_prob`` [T, B]."""
        return {"log_prob": self._log_prob[:steps]}
