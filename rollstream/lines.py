"""What `rollstream logs` and `rollstream events` print has in common."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from datetime import UTC, datetime

import typer
from rich.console import Console

from schemas.topics import check_name

COLOURS = {
    "worker": "cyan",
    "processor": "magenta",
    "learner": "green",
    "evaluator": "blue",
    "replayer": "bright_cyan",
    "archiver": "bright_black",
    "experiment": "bold",
    "warning": "yellow",
    "error": "red",
    "critical": "bold red",
    "alert": "bold red",
}
"""Of roles, levels of a log and severities of events."""


def line_console() -> Console:
    """Return a console that prints each line as it is, also to a pipe, and at once."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def show_time(time_ms: int) -> str:
    """Return a moment as RFC 3339 in UTC, with milliseconds."""
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_experiment(name: str) -> None:
    """Raise typer.BadParameter for what cannot be the name of an experiment."""
    try:
        check_name(name)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from exc


def check_choice(
    option: str, found: str, known: Iterable[str], in_words: str = ""
) -> None:
    """Raise typer.BadParameter, which exits with 2, for what is none of the known.

    Args:
        option: where it was given.
        found: what was given.
        known: what may be.
        in_words: instead of a list of those.
    """
    known = list(known)
    if found in known:
        return
    near = difflib.get_close_matches(found, known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise typer.BadParameter(
        f"expected one of {in_words or ', '.join(known)}, found {found!r}{hint}",
        param_hint=f"--{option}",
    )
