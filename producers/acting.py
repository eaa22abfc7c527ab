"""Observations -> actions and what the policy thought, for one unroll at a time.

An actor acts for T vector steps with one policy. All that is random is drawn at once
for the unroll; what is recorded is computed at once when it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Protocol

import numpy as np

from producers.policy import Policy, places
from producers.random_policy import draw
from producers.spaces import Fields
from schemas.records import NO_POLICY, PolicyRef, SpaceField
from schemas.tensors import Array

if TYPE_CHECKING:
    from onnxruntime import OrtValue


class Actor(Protocol):
    """What acts for one worker's B environments.

    Attributes:
        ref: the policy, as recorded.
        memory: what it carries from step to step.
        needs_validity: ``forget`` must be called after each step.
    """

    ref: PolicyRef
    memory: Memory
    needs_validity: bool

    @property
    def states(self) -> dict[str, Array]:
        """The recurrent state before the next step, [B, ...] by name."""

    def begin(self, num_steps: int, rng: np.random.Generator) -> None:
        """Get ready for an unroll of at most ``num_steps`` steps."""

    def act(self, t: int, observations: Fields) -> Fields:
        """Return the actions [B, ...] at row ``t``, from the observations there."""

    def forget(self, valid: Array) -> None:
        """Forget the past of the environments whose row was not ``valid`` [B]."""

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

    def __init__(
        self,
        actions: Sequence[SpaceField],
        num_envs: int,
        memory: Memory | None = None,
    ) -> None:
        self.memory = memory or Memory((), (), num_envs, 1)
        self.needs_validity = self.memory.remembers
        self._fields = actions
        self._num_envs = num_envs
        self._actions: dict[str, Array] = {}
        self._log_prob: Array = np.empty(0)

    @property
    def states(self) -> dict[str, Array]:
        """There is none."""
        return {}

    def begin(self, num_steps: int, rng: np.random.Generator) -> None:
        """Draw all actions."""
        lead = (num_steps, self._num_envs)
        self._actions, self._log_prob = draw(self._fields, lead, rng)

    def act(self, t: int, observations: Fields) -> Fields:
        """Return the actions of row ``t``."""
        self.memory.see(observations)
        return {name: values[t] for name, values in self._actions.items()}

    def forget(self, valid: Array) -> None:
        """Forget frames where the row was not valid."""
        self.memory.forget(valid)

    def finish(self, steps: int, observations: Fields) -> dict[str, Array]:
        """Return ``log_prob`` [T, B]."""
        return {"log_prob": self._log_prob[:steps]}


class QActor:
    """Epsilon-greedy on a graph's ``q`` [B, A]."""

    def __init__(
        self, policy: Policy, num_envs: int, epsilons: Array, frame_stack: int = 1
    ) -> None:
        graph = policy.session.graph
        self.ref = policy.ref
        self.memory = Memory(graph.observation, graph.states, num_envs, frame_stack)
        self.needs_validity = self.memory.remembers
        self._policy = policy
        self._epsilons = epsilons
        (self._field,) = graph.action
        self._num_actions, self._start = self._field.n[0], self._field.start[0]
        self._rows: list[OrtValue] = []

    @property
    def states(self) -> dict[str, Array]:
        """The recurrent state before the next step."""
        return self.memory.states

    def begin(self, num_steps: int, rng: np.random.Generator) -> None:
        """Draw who explores when, and how."""
        rows = (num_steps, len(self._epsilons))
        self._explores = rng.random(rows) < self._epsilons
        self._explored = np.flatnonzero(self._explores)
        self._random = np.empty(rows, np.int64)
        drawn = rng.integers(0, self._num_actions, len(self._explored))
        self._random.put(self._explored, drawn)
        self._taken = np.empty(rows, np.int64)
        if len(self._rows) <= num_steps:
            shape = (num_steps + 1, rows[1], self._num_actions)
            self._q = np.empty(shape, self._policy.session.output_dtype("q"))
            self._rows = places(self._q)

    def act(self, t: int, observations: Fields) -> Fields:
        """Return the greedy actions, at random where it explores."""
        self.memory.keep(self._run(t, self.memory.see(observations)))
        index: Array = self._taken[t]
        self._q[t].argmax(1, out=index)
        np.copyto(index, self._random[t], where=self._explores[t])
        action = index + self._start if self._start else index
        return {self._field.name: action.astype(self._field.dtype, copy=False)}

    def forget(self, valid: Array) -> None:
        """Forget states and frames where the row was not valid."""
        self.memory.forget(valid)

    def finish(self, steps: int, observations: Fields) -> dict[str, Array]:
        """Return ``q_max`` [T+1, B], ``q_taken`` and ``log_prob`` [T, B], float32."""
        self._run(steps, self.memory.peek(observations))
        q = self._q[: steps + 1]
        # Over so few numbers in a row, max() takes thirty times as long.
        first, *others = np.moveaxis(q, 2, 0)
        # A copy, for the next unroll's values are written where these are.
        q_max = reduce(np.maximum, others, first.copy()).astype(np.float32, copy=False)
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

    def _run(self, t: int, seen: Fields) -> dict[str, Array]:
        """Write the values of what is seen at row ``t``; return the other outputs."""
        into = {"q": self._rows[t]}
        return self._policy.run(seen, self.memory.states, into)


class Memory:
    """What a policy carries from step to step: recurrent state and earlier frames.

    Frames are recorded singly and stacked here, by step: [B, k, ...], oldest first.
    Both restart at observation t+1 exactly when row t is not valid: the state is zero
    then, and every frame is the observation at t+1.
    """

    def __init__(
        self,
        observation: Sequence[SpaceField],
        states: Sequence[SpaceField],
        num_envs: int,
        frame_stack: int,
    ) -> None:
        self.states = {f.name: np.zeros((num_envs, *f.shape), f.dtype) for f in states}
        self.remembers = bool(states) or frame_stack > 1
        self._stacked = frame_stack > 1
        self._frames = {
            f.name: np.zeros((num_envs, *f.shape), f.dtype) for f in observation
        }
        self._restart: Array = np.ones(num_envs, np.bool_)

    def see(self, observations: Fields) -> Fields:
        """Return the policy's input, and remember the newest frame."""
        if not self._stacked:
            return observations
        self._frames = self.peek(observations)
        self._restart[:] = False
        return self._frames

    def peek(self, observations: Fields) -> dict[str, Array]:
        """Return the policy's input without remembering it."""
        if not self._stacked:
            return dict(observations)
        stacked = {}
        for name, frames in self._frames.items():
            newest = observations[name][:, None]
            after = np.concatenate([frames[:, 1:], newest], 1)
            after[self._restart] = np.broadcast_to(newest, after.shape)[self._restart]
            stacked[name] = after
        return stacked

    def keep(self, outputs: Fields) -> None:
        """Take over the recurrent state that a policy returned."""
        for name in self.states:
            self.states[name] = outputs["next_state/" + name]

    def forget(self, valid: Array) -> None:
        """Restart where the row was not valid."""
        self._restart |= ~valid
        for name, state in self.states.items():
            self.states[name] = np.where(_column(valid, state), state, 0).astype(
                state.dtype
            )

    def take_over(self, other: Memory) -> None:
        """Go on where another policy's memory stands, if it is of the same shape."""
        if all(
            name in other.states and other.states[name].shape == state.shape
            for name, state in self.states.items()
        ):
            self.states = {name: other.states[name] for name in self.states}
        if self._frames.keys() == other._frames.keys():
            self._frames, self._restart = other._frames, other._restart


def _column(valid: Array, like: Array) -> Array:
    return valid.reshape(-1, *[1] * (like.ndim - 1))


MakeActor = Callable[[Policy, int, Array, int], "QActor"]

# Heads to come: "categorical" (logits, value) and "gaussian" (mean, log_std, value).
HEADS: dict[str, MakeActor] = {"q": QActor}
