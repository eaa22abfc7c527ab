"""How far a recording is -> what a person sees."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from rollstream.bar_display import BarDisplay


class PlayDisplay(BarDisplay):
    """Shows episodes that are done, and frames that are written; on a terminal only."""

    def __init__(self, console: Console, episodes: int) -> None:
        super().__init__(
            console,
            "playing",
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed} of {task.total} episodes", markup=False),
            TimeElapsedColumn(),
        )
        self._bar.update(self._task, total=episodes)

    def episode(self, done: int) -> None:
        """Show that another one has ended."""
        self._bar.update(self._task, completed=done)

    def frame(self, frames: int) -> None:
        """Show that another frame is written."""
        self._bar.update(self._task, description=f"recording, {frames:,} frames")
