"""A policy's graph -> what it answers at each row of an unroll, written in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from producers.memory import Memory
from producers.policy import Policy, places
from producers.spaces import Fields
from schemas.tensors import Array

if TYPE_CHECKING:
    from onnxruntime import OrtValue


class GraphSteps:
    """Runs a policy step by step, for B environments.

    Attributes:
        memory: what it carries from step to step.
        answers: the head's outputs, [T + 1, B, ...] by name; the next unroll's are
            written where these are.
    """

    def __init__(self, policy: Policy, num_envs: int, frame_stack: int) -> None:
        graph = policy.session.graph
        self.memory = Memory(graph.observation, graph.states, num_envs, frame_stack)
        self.answers: dict[str, Array] = {}
        self._policy = policy
        self._num_envs = num_envs
        self._remembers = bool(graph.states)
        self._places: list[Mapping[str, OrtValue]] = []

    def begin(self, num_steps: int) -> None:
        """Make room for an unroll of at most ``num_steps`` steps."""
        self.memory.begin(num_steps)
        if len(self._places) > num_steps:
            return
        lead = (num_steps + 1, self._num_envs)
        answers = self._policy.session.answers.items()
        self.answers = {
            name: np.empty((*lead, *shape), dtype) for name, (dtype, shape) in answers
        }
        rows = [places(column) for column in self.answers.values()]
        self._places = [
            dict(zip(self.answers, row, strict=True)) for row in zip(*rows, strict=True)
        ]

    def run(self, t: int, observations: Fields) -> None:
        """Answer what is seen at row ``t``, and go on to the next state."""
        memory = self.memory
        seen = memory.see(observations)
        if not self._remembers:
            self._policy.run(seen, {}, self._places[t])
            return
        into = {**self._places[t], **memory.next_places()}
        self._policy.run(seen, memory.states, into)
        memory.keep()

    def run_last(self, t: int, observations: Fields) -> None:
        """Answer what is seen behind the last row; nothing is remembered of it."""
        memory = self.memory
        seen = memory.peek(observations)
        self._policy.run(seen, memory.states, self._places[t])


def odd_rows(numbers: Array) -> Array | None:
    """Return which of the rows [T, B] are not finite; None: all are."""
    finite = np.isfinite(numbers)
    return None if finite.all() else ~finite
