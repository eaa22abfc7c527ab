"""B environments stepped as one; one that fails costs its own rows and no others.

Rows are in Gymnasium's NEXT_STEP mode: the row after an episode's end is the reset
row. A row whose environment failed is reported as a failure and as truncated: the
episode was cut there, and what follows is a reset.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from infra.errors import RollstreamError
from producers.env_slots import Slot, SlotFailed
from producers.seeding import StreamSeeds
from producers.spaces import Fields, SpaceRefused, Structure
from schemas.tensors import Array

MAX_REBUILDS = 5
_FIRST_DELAY_S = 0.1


class EnvFailed(RollstreamError):
    """An environment fails again and again; the process cannot go on."""


class Failure(NamedTuple):
    """A row without an answer.

    Attributes:
        env: its index.
        reason: the text of what happened; empty while it is being rebuilt.
    """

    env: int
    reason: str


class Step(NamedTuple):
    """What one vector step gave; [B] each, observations [B, ...] by name.

    The arrays are valid until the next step.
    """

    observations: Fields
    rewards: Array
    terminated: Array
    truncated: Array
    failures: tuple[Failure, ...] = ()


class Environments(Protocol):
    """B environments stepped as one.

    Attributes:
        num_envs: B.
        observation: structure of one environment's observations.
        action: structure of one environment's actions.
        vectorization: ``vector_entry_point``, ``sync`` or ``async``.
        restarts: how often an environment was rebuilt.
    """

    num_envs: int
    observation: Structure
    action: Structure
    vectorization: str
    restarts: int

    def reset(self, seeds: StreamSeeds) -> Fields:
        """Begin episode 0 of every environment; return the observations [B, ...]."""

    def step(self, actions: Fields) -> Step:
        """Step all environments; raises EnvFailed, EnvRefused."""

    def close(self) -> None:
        """Close all environments and renderers; never raises, never hangs."""


class SlotEnvironments:
    """Environments in slots of their own: sync or async."""

    def __init__(self, slots: Sequence[Slot], vectorization: str) -> None:
        self.num_envs = len(slots)
        self.vectorization = vectorization
        self.restarts = 0
        self._slots = slots
        self._ready = np.zeros(len(slots), np.bool_)
        self._failed_in_a_row = np.zeros(len(slots), np.int64)
        self._retry_at_s = np.zeros(len(slots))
        self._episode = np.zeros(len(slots), np.int64)
        self._seeds = StreamSeeds(0, 0, 0)
        try:
            self._build_all(range(len(slots)))
            self.observation, self.action = self._structures()
        except BaseException:
            self.close()
            raise
        self._observations = self.observation.empty(self.num_envs)

    def reset(self, seeds: StreamSeeds) -> Fields:
        """Begin episode 0 everywhere; raises EnvFailed when one never starts."""
        self._seeds = seeds
        self._episode[:] = 0
        self._build_all(np.flatnonzero(~self._ready).tolist())
        for slot in self._slots:
            slot.start(seeds, 0)
        waiting: Iterable[int] = range(self.num_envs)
        while waiting:
            step = self._collect(list(waiting), [None] * self.num_envs)
            waiting = [failure.env for failure in step.failures]
            self._build_all(waiting)
            for index in waiting:
                self._slots[index].start(seeds, 0)
        return self._observations

    def step(self, actions: Fields) -> Step:
        """Step all; those that are being rebuilt give failures."""
        self._rebuild()
        single = [
            self.action.unflatten({name: a[i] for name, a in actions.items()})
            for i in range(self.num_envs)
        ]
        step = self._collect(np.flatnonzero(self._ready).tolist(), single)
        self._episode += step.terminated | step.truncated
        return step

    def close(self) -> None:
        """Close every slot."""
        for slot in self._slots:
            slot.close()

    def _collect(self, indices: list[int], actions: Sequence[object]) -> Step:
        rewards = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, np.bool_)
        # Whoever does not answer has its episode cut.
        truncated = np.ones(self.num_envs, np.bool_)
        failures = {int(i): "" for i in np.flatnonzero(~self._ready)}
        for i in indices:
            self._slots[i].ask(actions[i])
        for i in indices:
            try:
                row = self._slots[i].answer()
                self.observation.write(row.observation, self._observations, i)
            except SlotFailed as exc:
                failures[i] = str(exc)
                self._note_failure(i, str(exc))
            except SpaceRefused as exc:
                raise EnvFailed(f"environment {i}: {exc.problem}", exc.mend) from exc
            else:
                rewards[i], terminated[i], truncated[i] = row[1:]
                # What ends with no number is no episode: it would fail for ever.
                if (terminated[i] or truncated[i]) and np.isfinite(rewards[i]):
                    self._failed_in_a_row[i] = 0
        listed = tuple(Failure(i, failures[i]) for i in sorted(failures))
        return Step(self._observations, rewards, terminated, truncated, listed)

    def _note_failure(self, index: int, reason: str) -> None:
        """Have the slot rebuilt, later each time; without an episode in between."""
        count = self._failed_in_a_row[index] = self._failed_in_a_row[index] + 1
        self._ready[index] = False
        if count > MAX_REBUILDS:
            raise EnvFailed(
                f"{reason}; it was rebuilt {MAX_REBUILDS} times in a row without "
                "finishing an episode",
                "mend the environment",
            )
        self.restarts += 1
        delay_s = 0.0 if count == 1 else _FIRST_DELAY_S * 2.0 ** (count - 2)
        self._retry_at_s[index] = time.monotonic() + delay_s
        self._slots[index].build()

    def _rebuild(self) -> None:
        """Take back the slots that are built by now; the others do not wait."""
        now_s = time.monotonic()
        for i in np.flatnonzero(~self._ready).tolist():
            if now_s < self._retry_at_s[i]:
                continue
            try:
                if self._slots[i].is_ready(wait=False):
                    self._slots[i].start(self._seeds, int(self._episode[i]))
                    self._ready[i] = True
            except SlotFailed as exc:
                self._note_failure(i, str(exc))

    def _build_all(self, indices: Iterable[int]) -> None:
        """Build and wait: at the start there is nobody who could go on meanwhile."""
        waiting = list(indices)
        for i in waiting:
            if self._failed_in_a_row[i] == 0:
                self._slots[i].build()
        while waiting:
            again = []
            for i in waiting:
                time.sleep(max(self._retry_at_s[i] - time.monotonic(), 0.0))
                try:
                    self._slots[i].is_ready(wait=True)
                    self._ready[i] = True
                except SlotFailed as exc:
                    self._note_failure(i, str(exc))
                    again.append(i)
            waiting = again

    def _structures(self) -> tuple[Structure, Structure]:
        first = self._slots[0].spaces()
        for i, slot in enumerate(self._slots):
            if slot.spaces() != first:
                raise EnvFailed(
                    f"environment {i}: expected the spaces of environment 0, "
                    f"{first}, found {slot.spaces()}"
                )
        return Structure.of(first[0]), Structure.of(first[1])
