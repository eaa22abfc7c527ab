"""Rows [T, B] -> the episodes that ended in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schemas.records import EpisodesFinished
from schemas.tensors import Array, pack

TERMINATED, TRUNCATED, ABORTED = 0, 1, 2
_DTYPES = {
    "envs": "<i4",
    "episodes": "<i8",
    "returns": "<f8",
    "lengths": "<i4",
    "endings": "|i1",
    "versions": "<i8",
}


@dataclass(frozen=True)
class Rows:
    """The rows of one unroll, [T, B] each.

    Attributes:
        valid: rows that are transitions.
        failed: rows whose environment gave no answer.
    """

    rewards: Array
    terminated: Array
    truncated: Array
    valid: Array
    failed: Array

    @property
    def ended(self) -> Array:
        """Rows that end an episode."""
        ended: Array = self.terminated | self.truncated
        return ended


class EpisodeTracker:
    """Numbers the episodes of B environments and sums them up.

    A row belongs to episode ``numbers`` plus the ends before it: the reset row is the
    first of the next. Returns are raw sums over valid rows and start again at what the
    environment calls an end, and only there: lives lost in between do not count.
    """

    def __init__(self, num_envs: int) -> None:
        self.numbers = np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)

    def take(self, rows: Rows, version: int) -> dict[str, Array]:
        """Return the columns [N] of the episodes that ended, by environment.

        An environment that fails again before its first step has no episode to show.
        """
        rewards = np.where(rows.valid, rows.rewards, 0.0).astype(np.float64)
        returns = np.cumsum(rewards, 0) + self._returns
        lengths = np.cumsum(rows.valid, 0, np.int64) + self._lengths
        ended = rows.ended
        envs, steps = np.divmod(np.flatnonzero(ended.T), len(ended))
        first = np.ones(len(envs), np.bool_)
        first[1:] = envs[1:] != envs[:-1]
        rank = np.arange(len(envs)) - np.maximum.accumulate(
            np.where(first, np.arange(len(envs)), 0)
        )
        columns = {
            "envs": envs,
            "episodes": self.numbers[envs] + rank,
            "returns": _since_previous(returns[steps, envs], first),
            "lengths": _since_previous(lengths[steps, envs], first),
            "endings": _endings(rows.terminated[steps, envs], rows.failed[steps, envs]),
            "versions": np.full(len(envs), version),
        }
        self._returns, self._lengths = returns[-1].copy(), lengths[-1].copy()
        last = np.flatnonzero(np.append(first, True)[1:])
        self._returns[envs[last]] -= returns[steps[last], envs[last]]
        self._lengths[envs[last]] -= lengths[steps[last], envs[last]]
        self.numbers = self.numbers + ended.sum(0)
        real = columns["lengths"] > 0
        return {
            name: column[real].astype(_DTYPES[name]) for name, column in columns.items()
        }


def _since_previous(totals: Array, first: Array) -> Array:
    before = np.zeros_like(totals)
    before[1:] = totals[:-1]
    return totals - np.where(first, 0, before)


def _endings(terminated: Array, failed: Array) -> Array:
    # Both flags at once: termination wins.
    alive = np.where(failed, ABORTED, TRUNCATED)
    return np.where(terminated, TERMINATED, alive)


class EpisodeLog:
    """Collects columns until they are published."""

    def __init__(self) -> None:
        self._columns: list[dict[str, Array]] = []

    def add(self, columns: dict[str, Array]) -> None:
        """Keep the columns of one unroll."""
        if len(columns["envs"]):
            self._columns.append(columns)

    def take(
        self, experiment: str, run_id: str, worker: str, incarnation: int, now_ms: int
    ) -> EpisodesFinished | None:
        """Return what was collected as a record, and forget it; None if nothing."""
        if not self._columns:
            return None
        joined = {
            name: pack(np.concatenate([c[name] for c in self._columns]))
            for name in _DTYPES
        }
        self._columns = []
        return EpisodesFinished(
            experiment=experiment,
            run_id=run_id,
            worker=worker,
            incarnation=incarnation,
            produced_at_ms=now_ms,
            **joined,
        )
