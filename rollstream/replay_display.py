"""How far a replay is -> what a person sees: a bar, or plain lines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from infra.printable import printable
from rollstream.bar_display import BarDisplay
from rollstream.display import PLAIN_INTERVAL_S

if TYPE_CHECKING:
    from archive.progress_log import Standing
    from archive.replay import Counts


class ReplayDisplay(BarDisplay):
    """Shows steps, steps a second, what is waited for, and the time left."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            console,
            "",
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        self._line_at_s = time.monotonic()

    def say(self, line: str, style: str | None = None) -> None:
        """Show a line that stays."""
        self._console.print(printable(line), style=style, markup=False, soft_wrap=True)

    def tell(self, what: str, done: int, total: int) -> None:
        """Show how far it is found out what is wanted."""
        self._show(what, done, total)

    def watch(self, standing: Standing, counts: Counts) -> None:
        """Show how far it is."""
        rate = self._rate.add(time.monotonic(), counts.env_steps)
        line = f"{standing.env_steps:,} env steps ({rate:,.0f}/s)"
        if counts.waiting:
            line += f", waiting for {counts.waiting}"
        self._show(line, standing.num_done, standing.total)

    def _show(self, what: str, done: int, total: int) -> None:
        self._bar.update(self._task, description=what, completed=done, total=total)
        if self._console.is_terminal:
            return
        if time.monotonic() - self._line_at_s >= PLAIN_INTERVAL_S:
            self._line_at_s = time.monotonic()
            share = done / total if total else 1.0
            self._console.print(f"{what}, {share:.0%}", markup=False, soft_wrap=True)
