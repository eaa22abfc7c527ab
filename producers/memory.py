"""What a policy carries from step to step: recurrent state and earlier frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from producers.policy import places
from producers.spaces import Fields
from schemas.records import SpaceField
from schemas.tensors import Array

if TYPE_CHECKING:
    from onnxruntime import OrtValue


class Memory:
    """Frames, stacked by step, and states, a row for each step of an unroll.

    Frames are recorded singly and stacked here: [B, k, ...], oldest first. States are
    written by the policy itself, behind those that it was given. Both restart at
    observation t+1 exactly when row t is not valid: the state is zero then, and every
    frame is the observation at t+1.

    Attributes:
        remembers: whether there is anything to forget.
        states: the recurrent state before the next step, [B, ...] by name.
        past: that before each row so far and before the next, [t+1, B, ...] by name.
    """

    def __init__(
        self,
        observation: Sequence[SpaceField],
        states: Sequence[SpaceField],
        num_envs: int,
        frame_stack: int,
    ) -> None:
        self.remembers = bool(states) or frame_stack > 1
        self._past: dict[str, Array] = {
            f.name: np.zeros((1, num_envs, *f.shape), f.dtype) for f in states
        }
        self._places: list[dict[str, OrtValue]] = []
        self._row = 0
        self._stacked = frame_stack > 1
        self._frames = {
            f.name: np.zeros((num_envs, *f.shape), f.dtype) for f in observation
        }
        self._restart: Array = np.ones(num_envs, np.bool_)

    @property
    def states(self) -> dict[str, Array]:
        """The recurrent state before the next step."""
        return {name: past[self._row] for name, past in self._past.items()}

    @property
    def past(self) -> dict[str, Array]:
        """The recurrent state before each row so far, and before the next."""
        return {name: past[: self._row + 1] for name, past in self._past.items()}

    def begin(self, num_steps: int) -> None:
        """Make room for an unroll; the state before its row 0 is the one that is."""
        if not self._past:
            return
        states, self._row = self.states, 0
        if len(self._places) < num_steps:
            self._make_room(num_steps)
        for name, state in states.items():
            self._past[name][0] = state

    def _make_room(self, num_steps: int) -> None:
        rows: dict[str, list[OrtValue]] = {}
        for name, past in self._past.items():
            self._past[name] = np.zeros((num_steps + 1, *past.shape[1:]), past.dtype)
            rows["next_state/" + name] = places(self._past[name][1:])
        each_row = zip(*rows.values(), strict=True)
        self._places = [dict(zip(rows, row, strict=True)) for row in each_row]

    def next_places(self) -> Mapping[str, OrtValue]:
        """Return where a policy is to write the state after the next step."""
        return self._places[self._row] if self._past else {}

    def keep(self) -> None:
        """Take over the recurrent state that a policy has written."""
        if self._past:
            self._row += 1

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

    def forget(self, valid: Array) -> None:
        """Restart where the row was not valid, [B]."""
        if valid.all():
            return
        self._restart |= ~valid
        for past in self._past.values():
            past[self._row, ~valid] = 0

    def take_over(self, other: Memory) -> None:
        """Go on where another policy's memory stands, if it is of the same shape."""
        theirs = other.states
        if all(_alike(theirs.get(name), own) for name, own in self.states.items()):
            for name, past in self._past.items():
                past[self._row] = theirs[name]
        if self._frames.keys() == other._frames.keys():
            self._frames, self._restart = other._frames, other._restart


def _alike(theirs: Array | None, own: Array) -> bool:
    return theirs is not None and (theirs.shape, theirs.dtype) == (own.shape, own.dtype)
