"""Rows that come from both ends of a log -> tables of the newest runs, bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from infra.monitoring.dashboard.curves import Floats
from infra.monitoring.dashboard.rows import TRACKS, Row

Columns = Mapping[str, Mapping[str, Floats]]
"""Of each track its columns, and ``t``."""

KEPT_S = 24 * 3600.0
MAX_RUNS = 3
# Two a second for a day, and then some: whoever writes more loses the oldest.
MAX_ROWS = 200_000


class RunTables:
    """The tracks of one run, each a table in the order of the log."""

    def __init__(self) -> None:
        self._tables = {
            track: np.empty((0, 1 + len(names))) for track, names in TRACKS.items()
        }

    @property
    def newest_s(self) -> float:
        """The time of the newest row."""
        return max((t[-1, 0] for t in self._tables.values() if len(t)), default=0.0)

    def put(self, track: str, rows: list[tuple[float, ...]], *, before: bool) -> None:
        """Add rows behind those that there are, or before them."""
        found, new = self._tables[track], np.array(rows, dtype=np.float64)
        both = np.concatenate((new, found) if before else (found, new))
        kept = both[both[:, 0] >= both[-1, 0] - KEPT_S]
        self._tables[track] = kept[-MAX_ROWS:]

    @property
    def oldest_s(self) -> float | None:
        """The time of the oldest row; None: there is none."""
        return min(
            (float(t[0, 0]) for t in self._tables.values() if len(t)), default=None
        )

    def columns(self) -> Columns:
        """Return each track's columns; times, as ``t``, do not go back."""
        return {
            track: {
                "t": np.maximum.accumulate(table[:, 0]),
                **{name: table[:, 1 + k] for k, name in enumerate(TRACKS[track])},
            }
            for track, table in self._tables.items()
        }

    def after(self, older: RunTables, until_s: float) -> RunTables:
        """Return what there is, and before it the rows that are older than a time."""
        both = RunTables()
        for track, table in self._tables.items():
            first = older._tables[track]
            first = first[first[:, 0] < until_s]
            both._tables[track] = np.concatenate((first, table))
        return both


def joined(
    skimmed: RunTables | None, whole: RunTables | None, whole_from_s: float
) -> Columns | None:
    """Return what is known of a run: some rows up to a time, and all that came after.

    Returns:
        its columns; None: nothing is known.
    """
    if skimmed is not None:
        return (whole or RunTables()).after(skimmed, whole_from_s).columns()
    return None if whole is None else whole.columns()


class Tables:
    """The newest runs of an experiment."""

    def __init__(self) -> None:
        self._runs: dict[str, RunTables] = {}

    def put(self, rows: Iterable[Row], *, before: bool) -> None:
        """Add rows in the order of the log, behind what there is, or before it."""
        found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
        for row in rows:
            found.setdefault((row.run_id, row.track), []).append(row.values)
        for (run_id, track), values in found.items():
            run = self._runs.setdefault(run_id, RunTables())
            run.put(track, values, before=before)
        for run_id in self.runs()[MAX_RUNS:]:
            del self._runs[run_id]

    @property
    def oldest_s(self) -> float | None:
        """The time of the oldest row of all; None: there is none."""
        found = (run.oldest_s for run in self._runs.values())
        return min((each for each in found if each is not None), default=None)

    def runs(self) -> list[str]:
        """Return the ids of the runs, newest first."""
        by_age = sorted(self._runs, key=lambda each: self._runs[each].newest_s)
        return by_age[::-1]

    def run(self, run_id: str) -> RunTables | None:
        """Return the tables of a run; None: nothing of it is kept."""
        return self._runs.get(run_id)
