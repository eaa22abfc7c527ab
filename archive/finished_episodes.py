"""Records of streams -> the returns and lengths of the episodes that are whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from archive.numbering import number_rows
from archive.selection import Condition
from schemas.records import StreamEnd, Unroll
from schemas.tensors import Array

_ENV_SHIFT = 44
"""An episode is one number: its environment, and behind that its own number."""

Stream = tuple[str, int]


def episode_numbers(unroll: Unroll) -> Array:
    """Return the number [T, B] of the episode that each row belongs to."""
    ended = unroll.terminated.array() | unroll.truncated.array()
    return number_rows(ended, unroll.episodes.array())


@dataclass(slots=True)
class _Open:
    """What is known of a stream's episodes that have not ended, [B] each."""

    next_sequence: int
    returns: Array
    lengths: Array
    is_whole: Array
    has_just_ended: Array


@dataclass
class FinishedEpisodes:
    """Finds the episodes of which conditions are true; keeps those alone.

    An episode counts when its stream has each of its rows, and each but the reset row
    is valid. Records come in the order of the log.
    """

    conditions: tuple[Condition, ...]
    _open: dict[Stream, _Open] = field(default_factory=dict)
    _found: dict[Stream, list[Array]] = field(default_factory=dict)
    _sorted: dict[Stream, Array] = field(default_factory=dict)

    def add(self, record: Unroll | StreamEnd) -> None:
        """Take the next record; repeated and late ones tell nothing new."""
        if isinstance(record, StreamEnd):
            return
        stream = record.worker, record.incarnation
        state = self._open.get(stream)
        if state is not None and record.sequence < state.next_sequence:
            return
        if state is None or len(state.returns) != record.num_envs:
            state = _begin(record)
        elif record.sequence > state.next_sequence:
            state.is_whole[:] = False
        self._open[stream] = state
        self._sum_up(stream, state, record)
        state.next_sequence = record.sequence + 1
        if record.end_of_stream:
            # What has not ended never will; the stream's place is remembered.
            state.is_whole[:] = False

    def choose(self, unroll: Unroll) -> Array:
        """Return which rows [T, B] are of an episode that was found."""
        stream = unroll.worker, unroll.incarnation
        if stream not in self._sorted:
            parts = self._found.pop(stream, [])
            none = np.empty(0, np.int64)
            self._sorted[stream] = np.sort(np.concatenate([none, *parts]))
        known = self._sorted[stream]
        wanted = _keys(np.arange(unroll.num_envs)[None, :], episode_numbers(unroll))
        if not len(known):
            return np.zeros(wanted.shape, np.bool_)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        found: Array = known[at] == wanted
        return found

    def __len__(self) -> int:
        """Return how many were found."""
        each: Iterable[Array] = [
            *self._sorted.values(),
            *(part for parts in self._found.values() for part in parts),
        ]
        return sum(map(len, each))

    def _sum_up(self, stream: Stream, state: _Open, unroll: Unroll) -> None:
        num_envs = unroll.num_envs
        valid = unroll.valid.array()
        ended = unroll.terminated.array() | unroll.truncated.array()
        follows_end = np.vstack([state.has_just_ended[None, :], ended[:-1]])
        part = np.zeros(ended.shape, np.int64)
        np.cumsum(ended[:-1], axis=0, out=part[1:])
        ends = ended.sum(axis=0)
        # Part 0 goes on with what was open; part ``ends`` stays open.
        width = int(ends.max()) + 1
        index = (np.arange(num_envs)[None, :] * width + part).ravel()

        def sums(values: Array) -> Array:
            found = np.bincount(index, values.ravel(), num_envs * width)
            return found.reshape(num_envs, width)

        rewards = np.where(valid, unroll.rewards.array(), 0.0)
        returns, lengths = sums(rewards), sums(valid.astype(np.float64))
        is_whole = sums((~valid & ~follows_end).astype(np.float64)) == 0
        returns[:, 0] += state.returns
        lengths[:, 0] += state.lengths
        is_whole[:, 0] &= state.is_whole
        has_ended = np.arange(width)[None, :] < ends[:, None]
        self._keep(stream, unroll, has_ended & is_whole, returns, lengths)
        last = np.arange(num_envs), ends
        state.returns, state.lengths = returns[last], lengths[last]
        state.is_whole, state.has_just_ended = is_whole[last], ended[-1]

    def _keep(
        self,
        stream: Stream,
        unroll: Unroll,
        are_done: Array,
        returns: Array,
        lengths: Array,
    ) -> None:
        are_done = are_done & (lengths > 0)
        for condition in self.conditions:
            are_done &= condition.holds(returns, lengths)
        envs, parts = np.nonzero(are_done)
        if len(envs):
            numbers = unroll.episodes.array()[envs] + parts
            self._found.setdefault(stream, []).append(_keys(envs, numbers))


def _begin(unroll: Unroll) -> _Open:
    """Return a stream's state before its first record that is there."""
    num_envs = unroll.num_envs
    return _Open(
        unroll.sequence,
        np.zeros(num_envs),
        np.zeros(num_envs),
        np.full(num_envs, unroll.sequence == 0),
        np.zeros(num_envs, np.bool_),
    )


def _keys(envs: Array, episodes: Array) -> Array:
    keys: Array = (envs.astype(np.int64) << _ENV_SHIFT) | episodes
    return keys
