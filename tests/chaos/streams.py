"""The environment's own rules, held against a partition of the trajectories.

Knows the environment and the record, nothing of how the product counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from schemas.records import StreamEnd, Unroll
from tests.chaos.counting_env import is_terminated, length_of
from tests.chaos.evidence import Logged

Problem = tuple[int, str]  # offset, what


@dataclass
class _Stream:
    """One incarnation of a worker.

    Attributes:
        is_closed: by itself, or by a record of a newer incarnation.
        has_ended: by itself: nothing may follow. (What a frozen worker still had to
            send may follow a newer incarnation's records: it was acknowledged.)
        at: by env, the observation that the next row has to begin with.
        over: by env, whether the episode has ended and a reset row follows.
    """

    next_sequence: int = 0
    next_step: int = 0
    last_offset: int = -1
    is_closed: bool = False
    has_ended: bool = False
    at: dict[int, tuple[int, ...]] = field(default_factory=dict)
    over: dict[int, bool] = field(default_factory=dict)


def check_streams(log: Sequence[Logged], *, must_be_closed: bool) -> Iterator[Problem]:
    """Yield what is wrong with one partition's log, in the order of offsets."""
    streams: dict[tuple[str, int], _Stream] = {}
    owners: dict[int, tuple[str, int]] = {}
    for logged in log:
        record = logged.record
        if isinstance(record, StreamEnd):
            _close(streams, record.worker, record.incarnation)
            if stream := streams.get((record.worker, record.incarnation)):
                stream.has_ended = True
        elif isinstance(record, Unroll):
            _close(streams, record.worker, record.incarnation - 1)
            who = record.worker, record.incarnation
            stream = streams.setdefault(who, _Stream())
            for what in _check_unroll(stream, record, owners):
                yield logged.offset, what
            stream.last_offset = logged.offset
            if record.end_of_stream:
                stream.is_closed = stream.has_ended = True
    if must_be_closed:
        for who, stream in streams.items():
            if not stream.is_closed:
                yield stream.last_offset, f"{who}: cut off, and nothing closes it"


def _close(streams: dict[tuple[str, int], _Stream], worker: str, up_to: int) -> None:
    for who, stream in streams.items():
        stream.is_closed |= who[0] == worker and who[1] <= up_to


def _check_unroll(
    stream: _Stream, unroll: Unroll, owners: dict[int, tuple[str, int]]
) -> Iterator[str]:
    who = (unroll.worker, unroll.incarnation)
    found = unroll.sequence, unroll.first_step
    if found != (stream.next_sequence, stream.next_step):
        expected = stream.next_sequence, stream.next_step
        yield f"{who}: expected (sequence, step) {expected}, found {found}"
    if stream.has_ended:
        yield f"{who}: sequence {unroll.sequence} after the stream had ended"
    stream.next_sequence = unroll.sequence + 1
    stream.next_step = unroll.first_step + unroll.num_steps
    observations = unroll.observations[""].array().astype(np.int64)
    for nonce in np.unique(observations[..., 1]).tolist():
        if owners.setdefault(nonce, who) != who:
            yield f"{who}: acts in the environment of {owners[nonce]}"
    columns = [
        column.array()
        for column in (
            unroll.rewards,
            unroll.terminated,
            unroll.truncated,
            unroll.valid,
        )
    ]
    episodes = unroll.episodes.array()
    for env in range(unroll.num_envs):
        seen = [tuple(row) for row in observations[:, env].tolist()]
        # A reset row counts to the episode that it begins.
        first = seen[0] if columns[3][0, env] else seen[1]
        if first[3] != episodes[env]:
            yield f"{who}: env {env}: episode {episodes[env]}, it is in {first}"
        rows = zip(*(column[:, env].tolist() for column in columns), strict=True)
        for t, row in enumerate(rows):
            for what in _check_row(stream, env, seen[t], seen[t + 1], *row):
                yield f"{who}: env {env} step {unroll.first_step + t}: {what}"


def _check_row(
    stream: _Stream,
    env: int,
    before: tuple[int, ...],
    after: tuple[int, ...],
    reward: float,
    terminated: bool,
    truncated: bool,
    valid: bool,
) -> Iterator[str]:
    expected = stream.at.get(env)
    if expected is not None and before != expected:
        yield f"expected to go on at {expected}, found {before}"
    stream.at[env] = after
    was_over = stream.over.get(env, False)
    stream.over[env] = terminated or truncated
    worker, nonce, _, episode, step = before
    if not valid:
        if terminated or truncated:
            return  # a step that failed: its episode is cut, and marked so
        fresh = after[1] != nonce or after == (worker, nonce, env, episode + 1, 0)
        if not was_over or not fresh or after[4] != 0:
            yield f"a row without validity from {before} to {after}"
        return
    if was_over:
        yield f"a step from {before}, which was over"
    if after != (worker, nonce, env, episode, step + 1) or reward != step + 1:
        yield f"a step from {before} to {after} with reward {reward}"
    ended = step + 1 == length_of(nonce, env, episode)
    how = is_terminated(nonce, env, episode)
    if (terminated, truncated) != (ended and how, ended and not how):
        yield f"{after}: terminated {terminated}, truncated {truncated}"
