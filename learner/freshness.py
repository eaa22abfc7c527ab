"""Rows that were learnt from -> how old they were, and whose; arrays, never row by row.

Age is the time between acting and learning, by two clocks: never below 0. Data age is
that of all rows, policy lag in seconds that of rows in which a policy acted.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from learner.origins import Acted
from learner.sum_tree import Floats, Indices

MOST_WORKERS = 64


class Freshness:
    """Gathers what was learnt from between two reports."""

    def __init__(self) -> None:
        self._parts: list[tuple[Floats, Floats, Indices]] = []
        self._rows: Indices = np.zeros(0, np.int64)
        self._workers: Sequence[str] = ()

    def add(
        self, acted: Acted, workers: Sequence[str], version: int, now_s: float
    ) -> None:
        """Add rows that were learnt from.

        Args:
            acted: their origins.
            workers: the names of all workers, by number; it only ever gets longer.
            version: of the newest policy that was published when they were.
            now_s: when they were, seconds since the epoch.
        """
        lags = np.maximum(version - acted.versions, 0.0)
        ages_s = np.maximum(now_s - acted.at_s, 0.0)
        self._parts.append((lags, ages_s, acted.counts))
        self._workers = workers
        if (more := len(workers) - len(self._rows)) > 0:
            self._rows = np.concatenate([self._rows, np.zeros(more, np.int64)])
        np.add.at(self._rows, acted.workers, acted.counts)

    def take(self) -> dict[str, float]:
        """Return the values since the last call, and start again; none of nothing."""
        if not self._parts:
            return {}
        lags, ages_s, counts = map(np.concatenate, zip(*self._parts, strict=True))
        self._parts = []
        by_age = np.argsort(ages_s)
        ages_s, counts_by_age = ages_s[by_age], counts[by_age]
        of_policies = ~np.isnan(lags[by_age])
        by_lag = np.argsort(lags)[: np.count_nonzero(of_policies)]  # NaN comes last
        data = Spread.of(ages_s, counts_by_age)
        lag = Spread.of(lags[by_lag], counts[by_lag])
        lag_s = Spread.of(ages_s[of_policies], counts_by_age[of_policies])
        return {
            **(lag.values("policy_lag_versions", "mean", "p95", "max") if lag else {}),
            **(lag_s.values("policy_lag_s", "mean", "p95", "max") if lag_s else {}),
            **(data.values("data_age_s", "p50", "p95") if data else {}),
        }

    def rows(self) -> dict[str, float]:
        """Return how many rows of each worker were learnt from since the start.

        A row counts as often as it was drawn. Of more than 64 workers, those with most.
        """
        rows = self._rows.tolist()
        most = heapq.nlargest(MOST_WORKERS, range(len(rows)), rows.__getitem__)
        return {f"trained_rows/{self._workers[n]}": rows[n] for n in most}


@dataclass(frozen=True, slots=True)
class Spread:
    """How values spread, each of which counts several times."""

    mean: float
    p50: float
    p95: float
    max: float

    @classmethod
    def of(cls, ordered: Floats, counts: Indices) -> Spread | None:
        """Return the spread of values in ascending order; None: there is none.

        A quantile is the smallest value that at least that share of all are at most.

        Args:
            ordered: [N].
            counts: [N], how many times each counts, at least once.
        """
        if not len(ordered):
            return None
        ends = np.cumsum(counts)
        total = int(ends[-1])
        ranks = [math.ceil(percent * total / 100) for percent in (50, 95)]
        p50, p95 = ordered[np.searchsorted(ends, ranks)].tolist()
        mean = float(ordered @ counts) / total
        return cls(mean, p50, p95, float(ordered[-1]))

    def values(self, name: str, *figures: str) -> dict[str, float]:
        """Return some of the figures, as values of metrics: ``<name>_<figure>``."""
        return {f"{name}_{figure}": getattr(self, figure) for figure in figures}
