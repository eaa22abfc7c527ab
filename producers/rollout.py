"""Environments and a policy -> unrolls: T vector steps of B environments as arrays.

Pure of Kafka. Nothing here is done per environment, and only the step itself per step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from producers.acting import Actor
from producers.env_recipe import EnvRefused
from producers.episodes import EpisodeTracker, Rows
from producers.guarded_env import Environments, Failure, Step
from producers.seeding import StreamSeeds
from producers.spaces import Fields
from producers.tally import Tally, odd_answers, tally
from schemas.records import PolicyRef
from schemas.tensors import Array

Arrays = dict[str, Array]


@dataclass(frozen=True)
class UnrollArrays:
    """What B environments did in T vector steps; shapes as in schemas.records.Unroll.

    The arrays are views into buffers that the next unroll overwrites.

    Attributes:
        first_step: of row 0, within the incarnation.
        states: recurrent state before each row, [T+1, B, ...]; a record has row 0's.
        finished: columns of the episodes that ended, see EpisodesFinished.
    """

    first_step: int
    policy: PolicyRef
    observations: Arrays
    actions: Arrays
    rows: Rows
    episodes: Array
    states: Arrays
    behaviour: Arrays
    finished: Arrays

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.rows.rewards)


class Rollout:
    """Steps environments unroll by unroll; holds what passes from one to the next."""

    def __init__(self, environments: Environments, seeds: StreamSeeds) -> None:
        self._environments = environments
        self._rng = seeds.action_rng()
        self.next_step = 0
        self._tracker = EpisodeTracker(environments.num_envs)
        self._observed: Fields = environments.reset(seeds)
        self._after_end = np.zeros(environments.num_envs, np.bool_)
        self._buffers: _Buffers | None = None
        self._steps = 0  # of the unroll under way
        self._tally = Tally()

    def collect(
        self,
        actor: Actor,
        num_steps: int,
        must_stop: Callable[[], bool] = lambda: False,
    ) -> UnrollArrays:
        """Take ``num_steps`` vector steps; fewer, but at least one, when told to stop.

        Raises:
            EnvFailed: an environment fails again and again.
            EnvRefused: the environment breaks the NEXT_STEP contract.
        """
        buffers = self._get_buffers(num_steps)
        actor.begin(num_steps, self._rng)
        buffers.begin(self._observed)
        steps = 0
        while steps < num_steps and not (steps and must_stop()):
            row = buffers.observation(steps)
            actions = actor.act(steps, row)
            step = self._environments.step(actions)
            buffers.write(steps, actions, step)
            if step.failures:
                self._note_crashes(step.failures)
            if actor.memory.remembers:
                after = buffers.ended(steps - 1) if steps else self._after_end
                actor.memory.forget(buffers.valid(steps, after))
            self._steps = steps = steps + 1
        behaviour = actor.finish(steps, buffers.observation(steps))
        rows, is_reset = self._judge(buffers, steps)
        self._after_end = rows.ended[-1].copy()
        self._tally = self._tally.plus(self._count(buffers, rows, is_reset))
        if actor.odd is not None:
            self._tally = self._tally.plus(odd_answers(actor.odd, actor.ref))
        self._steps = 0
        episodes = self._tracker.numbers
        finished = self._tracker.take(rows, actor.ref.version)
        self._observed = {n: o[steps].copy() for n, o in buffers.observations.items()}
        first_step, self.next_step = self.next_step, self.next_step + steps
        return UnrollArrays(
            first_step=first_step,
            policy=actor.ref,
            observations={n: o[: steps + 1] for n, o in buffers.observations.items()},
            actions={n: a[:steps] for n, a in buffers.actions.items()},
            rows=rows,
            episodes=episodes,
            states=actor.memory.past,
            behaviour=behaviour,
            finished=finished,
        )

    def look(self) -> Tally:
        """Return how good the rows are so far, also those of the unroll under way.

        What is odd, and what has crashed, is told once.
        """
        done = self._tally
        self._tally = Tally(done.usable, done.unusable, odd_answers=done.odd_answers)
        buffers, steps = self._buffers, self._steps
        if buffers is None or not steps:
            return done
        return done.plus(self._count(buffers, *self._judge(buffers, steps)))

    def _note_crashes(self, failures: tuple[Failure, ...]) -> None:
        for reason in (failure.reason for failure in failures if failure.reason):
            self._tally = self._tally.plus(Tally(crashes=1, crash=reason))

    def _count(self, buffers: _Buffers, rows: Rows, is_reset: Array) -> Tally:
        steps = len(rows.valid)
        seen = {name: o[: steps + 1] for name, o in buffers.observations.items()}
        return tally(rows, is_reset, seen, self.next_step)

    def _judge(self, buffers: _Buffers, steps: int) -> tuple[Rows, Array]:
        """Say which rows are transitions: not resets, failures or odd rewards.

        Returns:
            the rows, and which of them are resets.
        """
        rewards, failed = buffers.rewards[:steps], buffers.failed[:steps]
        terminated, truncated = buffers.terminated[:steps], buffers.truncated[:steps]
        ended = terminated | truncated
        is_reset = np.concatenate([self._after_end[None], ended[:-1]])
        if (is_reset & ~failed & (ended | (rewards != 0))).any():
            raise EnvRefused(
                "expected NEXT_STEP autoreset, where the row after an episode's end is "
                "a reset with reward 0, found another step there",
                "declare the autoreset mode that the environment really has",
            )
        valid = ~(is_reset | failed) & np.isfinite(rewards)
        return Rows(rewards, terminated, truncated, valid, failed), is_reset

    def _get_buffers(self, num_steps: int) -> _Buffers:
        if self._buffers is None or len(self._buffers.terminated) < num_steps:
            self._buffers = _Buffers(self._environments, num_steps)
        return self._buffers


class _Buffers:
    """The arrays of one unroll, [T, B, ...], allocated once."""

    def __init__(self, environments: Environments, num_steps: int) -> None:
        rows = (num_steps, environments.num_envs)
        self.observations = environments.observation.empty(num_steps + 1, rows[1])
        self.actions = environments.action.empty(*rows)
        self.rewards: Array = np.zeros(rows, np.float64)
        self.terminated = np.zeros(rows, np.bool_)
        self.truncated = np.zeros(rows, np.bool_)
        self.failed = np.zeros(rows, np.bool_)

    def begin(self, observed: Fields) -> None:
        for name, column in self.observations.items():
            column[0] = observed[name]
        if self.failed.any():
            self.failed[:] = False

    def observation(self, t: int) -> Arrays:
        return {name: column[t] for name, column in self.observations.items()}

    def write(self, t: int, actions: Fields, step: Step) -> None:
        for name, column in self.observations.items():
            column[t + 1] = step.observations[name]
        for name, column in self.actions.items():
            column[t] = actions[name]
        if t == 0 and step.rewards.dtype != self.rewards.dtype and not step.failures:
            # Rewards keep the precision that the environment gives them.
            self.rewards = np.zeros(self.rewards.shape, step.rewards.dtype)
        self.rewards[t] = step.rewards
        self.terminated[t] = step.terminated
        self.truncated[t] = step.truncated
        for failure in step.failures:
            self.failed[t, failure.env] = True

    def ended(self, t: int) -> Array:
        ended: Array = self.terminated[t] | self.truncated[t]
        return ended

    def valid(self, t: int, after_end: Array) -> Array:
        known: Array = ~(after_end | self.failed[t]) & np.isfinite(self.rewards[t])
        return known
