"""``rollstream ps``: all experiments in one table."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from rollstream.options import Json

if TYPE_CHECKING:
    from infra.monitoring.overview import ExperimentRow, Overview

EPILOG = "Example: rollstream ps --json"
PIPE_WIDTH = 200


def ps(
    as_json: Json = False,
) -> None:
    """List all experiments: what is wanted, what is, and how far they are.

    RETURN is the mean of the newest evaluation, or of exploring episodes (~). Exit
    code: 0, also when there is none.
    """
    from infra.monitoring.overview import read_overview
    from rollstream.machine import running

    found = read_overview(running())
    if as_json:
        print(json.dumps([asdict(row) for row in found.experiments]))
    else:
        _show(found)
    if found.agents is None:
        typer.echo("ZooKeeper does not answer: what runs is not known", err=True)
    elif not found.agents and any(row.managed_by == "agents" and row.wanted != "stopped"
                                  for row in found.experiments):  # fmt: skip
        typer.echo("no agent runs: `rollstream agent` starts one", err=True)


def _show(found: Overview) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rollstream.printable import printable

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("EXPERIMENT", no_wrap=True)
    for column in ("STATE", "ROLES", "ENV STEPS", "RETURN", "AGE", "AGENTS"):
        justify: Any = "right" if column in ("ENV STEPS", "RETURN") else "left"
        table.add_column(column, justify=justify, overflow="fold")
    table.add_column("REASON", no_wrap=True, overflow="ellipsis")
    for row in found.experiments:
        table.add_row(*(Text(printable(cell)) for cell in _cells(row)))
    Console(highlight=False, width=width).print(table)


def _cells(row: ExperimentRow) -> list[str]:
    from rollstream.ages import age

    state = row.state
    if row.wanted and row.wanted != row.state and row.state != "finished":
        state = f"{row.state} ({row.wanted} wanted)"
    running = "?" if row.roles_running is None else str(row.roles_running)
    mean = "-" if row.mean_return is None else f"{row.mean_return:.1f}"
    by_hand = row.managed_by == "run"
    agents = ", ".join(row.agents) or "-"
    return [
        row.experiment,
        state,
        f"{running}/{row.roles_wanted}",
        "-" if row.env_steps is None else f"{row.env_steps:,}",
        mean if row.is_greedy or row.mean_return is None else f"~{mean}",
        "-" if row.age_ms is None else age(row.age_ms),
        f"{agents} (rollstream run)" if by_hand and row.agents else agents,
        row.reason,
    ]
