"""A line of a role's log -> JSON, or what a person sees."""

from __future__ import annotations

import json
from collections.abc import Callable

from rich.text import Text

from infra.log_lines import LogLine
from infra.printable import printable
from rollstream.lines import COLOURS, line_console, show_time


def make_show(experiment: str, *, as_json: bool) -> Callable[[LogLine], None]:
    """Return what prints a line."""
    if as_json:
        return lambda line: print(json.dumps(to_json(experiment, line)), flush=True)
    console = line_console()
    return lambda line: console.print(to_text(line), soft_wrap=True)


def to_json(experiment: str, line: LogLine) -> dict[str, object]:
    """Return a line as JSON-able values, as the role wrote it; raw ones say so."""
    values: dict[str, object] = {
        "time": show_time(line.time_ms),
        "level": line.level,
        "experiment": experiment,
        "role": line.role,
        "index": line.index,
    }
    if line.is_raw:
        return {**values, "message": line.message, "raw": True}
    values |= {"logger": line.logger, "message": line.message}
    return {**values, "exception": line.exception} if line.exception else values


def to_text(line: LogLine) -> Text:
    """Return a line for a terminal, which obeys nothing in it; tracebacks below it."""
    first, *more = line.message.expandtabs().splitlines() or [""]
    more += line.exception.expandtabs().splitlines()
    level = printable(line.level.lower())
    who = f"{line.role}/{line.index}"
    text = Text.assemble(
        (show_time(line.time_ms), "dim"),
        " ",
        (f"{level:<8}", COLOURS.get(level, "dim")),
        " ",
        (f"{who:<12}", COLOURS.get(line.role, "")),
        " ",
        printable(first),
    )
    for each in more:
        text.append(f"\n    {printable(each)}")
    return text
