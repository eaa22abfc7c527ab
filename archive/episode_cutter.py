"""Unrolls in the order of their log -> whole episodes, environment by environment.

A whole episode has its first row and its last, and only valid rows between: no hole of
its stream, no reward that is not finite, and all of it is chosen. Others are left out
and counted, never shortened: what is cut looks like an end that was not there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from archive.episode_rows import Arrays, Rows
from archive.episodes import Episode, EpisodeCounts
from archive.recorded import Recorded, Source
from schemas.errors import SchemaError
from schemas.records import PolicyRef, StreamEnd, Unroll
from schemas.tensors import Array

Choose = Callable[[Recorded], Array | None]
"""A record of an Unroll -> which rows are wanted, [T, B] bool; None: all."""
Bounds = Mapping[int, tuple[int, int]]
"""By partition (first offset, next offset); see `archive.recorded.Source`."""

_log = logging.getLogger("rollstream.archive")


@dataclass(slots=True)
class _Part:
    """Consecutive steps of one record; the last part has one observation more."""

    observations: Arrays
    actions: Arrays
    rewards: Array
    policy: PolicyRef


@dataclass(slots=True)
class _Open:
    """An episode that has not ended.

    Attributes:
        number: its number.
        has_begun: a row of it has come.
        begins_with_reset: its first row is the reset row, as after every end.
        is_broken: it can no longer become whole.
        is_chosen: all rows so far are wanted.
    """

    number: int
    begins_with_reset: bool = False
    has_begun: bool = False
    is_broken: bool = False
    is_chosen: bool = True
    parts: list[_Part] = field(default_factory=list)


@dataclass(slots=True)
class _Stream:
    incarnation: int
    next_sequence: int
    next_step: int
    envs: list[_Open]


class EpisodeCutter:
    """Takes records as they are in the log, and gives back the episodes that end.

    Holds the open episodes of each worker's newest stream, and nothing else.
    """

    def __init__(self) -> None:
        self.counts = EpisodeCounts()
        self._streams: dict[str, _Stream] = {}

    def take(
        self, record: Unroll | StreamEnd, chosen: Array | None = None
    ) -> list[Episode]:
        """Return the whole episodes that end in a record, by environment.

        Repeated records, and those of a stream that a newer one has replaced, change
        nothing.

        Args:
            record: the next of its partition.
            chosen: [T, B] bool, which rows of an Unroll are wanted; None: all.

        Raises:
            SchemaError: a tensor cannot be opened; nothing has changed.
        """
        if isinstance(record, StreamEnd):
            stream = self._streams.get(record.worker)
            if stream is not None and stream.incarnation <= record.incarnation:
                self._close(stream)
            return []
        if self._is_old(record):
            return []
        rows = Rows.of(record, chosen)
        stream = self._goes_on(record)
        found: list[Episode] = []
        for env, open_ in enumerate(stream.envs):
            found += self._take_env(open_, rows, env)
        stream.next_sequence = record.sequence + 1
        stream.next_step = record.first_step + record.num_steps
        if record.end_of_stream:
            self._close(stream)
        return found

    def finish(self) -> None:
        """Say that nothing more comes: what is open stays unfinished."""
        for stream in self._streams.values():
            self._close(stream)
        self._streams.clear()

    def _is_old(self, unroll: Unroll) -> bool:
        stream = self._streams.get(unroll.worker)
        place = unroll.incarnation, unroll.sequence
        return stream is not None and place < (stream.incarnation, stream.next_sequence)

    def _goes_on(self, unroll: Unroll) -> _Stream:
        """Return the unroll's stream, with what is open of it."""
        stream = self._streams.get(unroll.worker)
        if stream is not None and (
            unroll.incarnation,
            unroll.sequence,
            unroll.first_step,
            unroll.num_envs,
        ) == (
            stream.incarnation,
            stream.next_sequence,
            stream.next_step,
            len(stream.envs),
        ):
            return stream
        if stream is not None:
            self._close(stream)
        # Behind a hole everything is in the middle of an episode.
        is_begin = unroll.sequence == 0 and unroll.first_step == 0
        stream = _Stream(
            unroll.incarnation,
            unroll.sequence,
            unroll.first_step,
            [
                _Open(number, has_begun=not is_begin, is_broken=not is_begin)
                for number in unroll.episodes.array().tolist()
            ],
        )
        self._streams[unroll.worker] = stream
        return stream

    def _close(self, stream: _Stream) -> None:
        self.counts.unfinished += sum(bool(env.parts) for env in stream.envs)
        stream.envs = []

    def _take_env(self, open_: _Open, rows: Rows, env: int) -> Iterator[Episode]:
        if open_.number != rows.episodes[env]:
            # Its end is hidden in rows that were sent without what was in them.
            open_.number, open_.is_broken = rows.episodes[env], True
        start = 0
        for last in np.flatnonzero(rows.ended[:, env]).tolist():
            self._add(open_, rows, env, start, last + 1)
            episode = self._end(open_, rows, env, last)
            if episode is not None:
                yield episode
            _begin_next(open_)
            start = last + 1
        if start < len(rows.rewards):
            self._add(open_, rows, env, start, len(rows.rewards))

    def _add(self, open_: _Open, rows: Rows, env: int, start: int, end: int) -> None:
        """Take rows [start, end), of which no other than the last ends an episode."""
        if not open_.has_begun:
            open_.has_begun = True
            if open_.begins_with_reset:
                open_.is_broken |= bool(rows.valid[start, env])
                start += 1
        valid = rows.valid[start:end, env]
        ends = bool(rows.ended[end - 1, env])
        # A step that failed, or has no reward, ends the episode before it.
        if ends and start < end and not valid[-1]:
            valid = valid[:-1]
        open_.is_broken |= not valid.all()
        open_.is_chosen &= bool(rows.chosen[start:end, env].all())
        stop = start + len(valid)
        if open_.is_broken:
            open_.parts.clear()
        elif not ends and start == stop:
            return
        else:
            open_.parts.append(_cut(rows, env, start, stop, stop + ends))

    def _end(self, open_: _Open, rows: Rows, env: int, last: int) -> Episode | None:
        length = sum(len(part.rewards) for part in open_.parts)
        if open_.is_broken:
            self.counts.broken += 1
        elif length and not open_.is_chosen:
            self.counts.not_chosen += 1
        elif length:
            self.counts.episodes += 1
            self.counts.env_steps += length
            return _join(open_, rows, env, last, length)
        return None  # an environment that fails again before its first step


def _begin_next(open_: _Open) -> None:
    open_.number += 1
    open_.begins_with_reset, open_.has_begun = True, False
    open_.is_broken, open_.is_chosen = False, True
    open_.parts = []


def _cut(rows: Rows, env: int, start: int, stop: int, observed: int) -> _Part:
    # Copies: a view would keep the whole unroll.
    return _Part(
        {n: o[start:observed, env].copy() for n, o in rows.observations.items()},
        {n: a[start:stop, env].copy() for n, a in rows.actions.items()},
        rows.rewards[start:stop, env].copy(),
        rows.unroll.policy,
    )


def _join(open_: _Open, rows: Rows, env: int, last: int, length: int) -> Episode:
    parts = open_.parts
    terminations, truncations = np.zeros((2, length), np.bool_)
    is_valid = bool(rows.valid[last, env])
    terminations[-1] = is_valid and rows.terminated[last, env]
    truncations[-1] = not is_valid or rows.truncated[last, env]
    policies = [part.policy for part in parts if len(part.rewards)]
    return Episode(
        worker=rows.unroll.worker,
        incarnation=rows.unroll.incarnation,
        env=env,
        number=open_.number,
        observations=_concatenate([part.observations for part in parts]),
        actions=_concatenate([part.actions for part in parts]),
        rewards=np.concatenate([part.rewards for part in parts]),
        terminations=terminations,
        truncations=truncations,
        first_policy=min(policies),
        last_policy=max(policies),
        produced_at_ms=rows.unroll.produced_at_ms,
        failed=not is_valid,
    )


def _concatenate(parts: list[Arrays]) -> Arrays:
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def read_episodes(
    source: Source,
    bounds: Bounds,
    cutter: EpisodeCutter,
    choose: Choose = lambda recorded: None,
) -> Iterator[Episode]:
    """Yield the whole episodes of a source.

    By partition, and in the order in which they end there. Memory: the open episodes of
    one partition.

    Args:
        source: what is read.
        bounds: what of it.
        cutter: has no record yet; has the counts afterwards.
        choose: says which rows are wanted.
    """
    for partition, (first, end) in sorted(bounds.items()):
        for recorded in source.read(partition, first, end):
            try:
                yield from cutter.take(recorded.record, choose(recorded))
            except SchemaError as exc:
                _log.warning("%s is passed over: %s", recorded.address, exc)
        cutter.finish()
