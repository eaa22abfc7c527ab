"""Where tables are printed."""

from __future__ import annotations

import sys

from rich.console import Console


def table_console(pipe_width: int) -> Console:
    """Return a console as wide as the terminal; a pipe has no width of its own.

    There nothing may be cut or folded sooner than at ``pipe_width``.
    """
    width = None if sys.stdout.isatty() else pipe_width
    return Console(highlight=False, width=width)
