"""A bar that is shown while something is done, and is gone afterwards."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn

from rollstream.rates import Rate


class BarDisplay:
    """What displays of a task with one bar have in common; nothing without terminal."""

    def __init__(self, console: Console, task: str, *columns: ProgressColumn) -> None:
        self._console = console
        self._rate = Rate()
        self._bar = Progress(
            *columns,
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(task, total=None)

    def __enter__(self) -> Self:
        """Start to show."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave a clean terminal."""
        self._bar.stop()
