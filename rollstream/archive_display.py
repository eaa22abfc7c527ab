"""How far an archive is -> what a person sees: a bar, or plain lines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from infra.printable import printable
from rollstream.bar_display import BarDisplay
from rollstream.display import PLAIN_INTERVAL_S

_BAR_S = 0.25


class Counted(Protocol):
    """What is shown of it."""

    records: int
    rows: int
    bytes: int
    repeats: int
    reading: int
    reading_rows: int


class ArchiveDisplay(BarDisplay):
    """Shows records, steps a second, megabytes, and how much is left."""

    def __init__(self, console: Console, following: bool) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
        super().__init__(console, "archiving", *columns)
        self._following = following
        self._shown_at_s = time.monotonic()
        # How much was left when that was last asked, and how much was done by then.
        self._left = self._done = 0

    def begin(self, behind: Mapping[int, int]) -> None:
        """Say how much there is to do; nobody knows that of what follows."""
        self._left = sum(behind.values())
        self._rate.add(time.monotonic(), 0)
        if not self._following:
            self._bar.update(self._task, total=self._left)

    def warn(self, reason: str) -> None:
        """Show what a person should know."""
        self._console.print(printable(reason), style="yellow", markup=False)

    def tick(self, counts: Counted) -> None:
        """Show the counts, if it is time."""
        every_s = _BAR_S if self._console.is_terminal else PLAIN_INTERVAL_S
        if time.monotonic() - self._shown_at_s >= every_s:
            self._show(counts)

    def show(self, counts: Counted, behind: Mapping[int, int]) -> None:
        """Show the counts and what is left; plain lines only now and then."""
        self._left, self._done = sum(behind.values()), _done(counts)
        if self._console.is_terminal:
            self._show(counts)
        else:
            self.tick(counts)

    def _show(self, counts: Counted) -> None:
        now_s = self._shown_at_s = time.monotonic()
        done, rows = _done(counts), counts.rows + counts.reading_rows
        left = max(self._left + self._done - done, 0)
        text = (
            f"{done:,} records, {rows:,} steps, {self._rate.add(now_s, rows):,.0f} "
            f"steps/s, {counts.bytes / 1e6:,.1f} MB, behind by {left:,} records"
        )
        self._bar.update(self._task, description=text, completed=done)
        if not self._console.is_terminal:
            self._console.print(text, markup=False)


def _done(counts: Counted) -> int:
    return counts.records + counts.repeats + counts.reading
