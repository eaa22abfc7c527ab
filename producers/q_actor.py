"""Acts epsilon-greedily on action values."""

from __future__ import annotations

from functools import reduce

import numpy as np

from producers.graph_steps import GraphSteps, odd_rows
from producers.policy import Policy
from producers.spaces import Fields
from schemas.tensors import Array


class QActor:
    """Epsilon-greedy on a graph's ``q`` [B, A]."""

    def __init__(
        self, policy: Policy, num_envs: int, epsilons: Array, frame_stack: int = 1
    ) -> None:
        self.ref = policy.ref
        self.odd: Array | None = None
        self._steps = GraphSteps(policy, num_envs, frame_stack)
        self.memory = self._steps.memory
        self._epsilons = epsilons
        (self._field,) = policy.session.graph.action
        self._num_actions, self._start = self._field.n[0], self._field.start[0]

    def begin(self, num_steps: int, rng: np.random.Generator) -> None:
        """Draw who explores when, and how."""
        rows = (num_steps, len(self._epsilons))
        self._explores = rng.random(rows) < self._epsilons
        self._explored = np.flatnonzero(self._explores)
        self._random = np.empty(rows, np.int64)
        drawn = rng.integers(0, self._num_actions, len(self._explored))
        self._random.put(self._explored, drawn)
        self._taken = np.empty(rows, np.int64)
        self._steps.begin(num_steps)
        self._q = self._steps.answers["q"]

    def act(self, t: int, observations: Fields) -> Fields:
        """Return the greedy actions, at random where it explores."""
        self._steps.run(t, observations)
        index: Array = self._taken[t]
        self._q[t].argmax(1, out=index)
        np.copyto(index, self._random[t], where=self._explores[t])
        action = index + self._start if self._start else index
        return {self._field.name: action.astype(self._field.dtype, copy=False)}

    def finish(self, steps: int, observations: Fields) -> dict[str, Array]:
        """Return ``q_max`` [T+1, B], ``q_taken`` and ``log_prob`` [T, B], float32."""
        self._steps.run_last(steps, observations)
        q = self._q[: steps + 1]
        # Over so few numbers in a row, max() takes thirty times as long.
        first, *others = np.moveaxis(q, 2, 0)
        # A copy, for the next unroll's values are written where these are.
        q_max = reduce(np.maximum, others, first.copy()).astype(np.float32, copy=False)
        self.odd = odd_rows(q_max[:steps])
        q_taken = q_max[:steps].copy()
        share = self._epsilons / self._num_actions
        log_if = np.log(np.stack([share, share + 1 - self._epsilons]).clip(1e-38))
        log_prob = np.empty(q_taken.shape, np.float32)
        log_prob[:] = log_if[1]
        # Only who explored may have taken another action than the greedy one.
        explored = self._explored[: self._explored.searchsorted(q_taken.size)]
        values = q.reshape(-1, self._num_actions)[explored]
        taken = self._taken.take(explored)
        q_taken.put(explored, values[np.arange(len(explored)), taken])
        unlike = explored[taken != values.argmax(1)]
        log_prob.put(unlike, log_if[0].take(unlike % len(share)))
        return {"q_max": q_max, "q_taken": q_taken, "log_prob": log_prob}
