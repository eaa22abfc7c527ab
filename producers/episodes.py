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
        steps, num_envs = rows.valid.shape
        # By environment, and a column more: a part that begins there is empty.
        begins = np.zeros((num_envs, steps + 1), np.bool_)
        begins[:, 0] = True
        begins[:, 1:] = rows.ended.T
        starts = np.flatnonzero(begins)
        rewards = np.zeros(begins.shape)
        np.copyto(rewards[:, :-1], rows.rewards.T, where=rows.valid.T)
        valid = np.zeros(begins.shape, np.int32)
        valid[:, :-1] = rows.valid.T
        returns = np.add.reduceat(rewards.reshape(-1), starts)
        lengths = np.add.reduceat(valid.reshape(-1), starts)
        # Each environment's first part goes on with what earlier unrolls left open; its
        # last is left open, and every other one ends where the next begins.
        envs, first_steps = np.divmod(starts, steps + 1)
        first = np.flatnonzero(first_steps == 0)
        returns[first] += self._returns
        lengths[first] += self._lengths
        rank = np.arange(len(starts)) - first[envs]
        is_open = np.append(first_steps[1:] == 0, True)
        self._returns, self._lengths = returns[is_open], lengths[is_open]
        last_step = np.append(first_steps[1:], 0)[~is_open] - 1
        envs = envs[~is_open]
        at = (last_step, envs)
        columns = {
            "envs": envs,
            "episodes": self.numbers[envs] + rank[~is_open],
            "returns": returns[~is_open],
            "lengths": lengths[~is_open],
            "endings": _endings(rows.terminated[at], rows.failed[at]),
            "versions": np.full(len(envs), version),
        }
        self.numbers = self.numbers + rank[is_open]
        real = columns["lengths"] > 0
        return {
            name: column[real].astype(_DTYPES[name]) for name, column in columns.items()
        }


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
