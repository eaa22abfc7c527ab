"""``rollstream ps``: all experiments in one table."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from rollstream.hints import NO_AGENT
from rollstream.options import Json

if TYPE_CHECKING:
    from infra.monitoring.overview import ExperimentRow, Overview

EPILOG = "Example: rollstream ps --json"
_COLUMNS = (
    "EXPERIMENT", "STATE", "ROLES", "ENV STEPS", "RETURN", "AGE", "AGENTS", "REASON",
)  # fmt: skip
_LEAST_REASON = 24
_SHOWN_AGENTS = 2
_ANY_WIDTH = 100_000


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
    elif not found.agents and any(map(_needs_agents, found.experiments)):
        typer.echo(NO_AGENT, err=True)


def _needs_agents(row: ExperimentRow) -> bool:
    is_over = row.wanted == "stopped" or row.state == "finished"
    return row.managed_by == "agents" and not is_over


def _show(found: Overview) -> None:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from infra.printable import printable

    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in _COLUMNS:
        justify: Any = "right" if column in ("ENV STEPS", "RETURN") else "left"
        table.add_column(column, justify=justify, no_wrap=True, overflow="ellipsis")
    longest = len(_COLUMNS[-1])
    for row in found.experiments:
        cells = [printable(cell) for cell in _cells(row)]
        longest = max(longest, cell_len(cells[-1]))
        table.add_row(*map(Text, cells))
    # No column is folded: a line that a terminal wraps can be read, slivers cannot. A
    # terminal gets as much of the reason as fits, a pipe all of it.
    console = Console(highlight=False)
    is_terminal, shown_width = console.is_terminal, console.width
    console.width = _ANY_WIDTH
    if is_terminal:
        excess = console.measure(table).maximum - shown_width
        table.columns[-1].max_width = max(longest - excess, _LEAST_REASON)
    with console.capture() as shown:
        console.print(table)
    print("\n".join(line.rstrip() for line in shown.get().splitlines()))


def _cells(row: ExperimentRow) -> list[str]:
    from rollstream.ages import age

    state = row.state
    # That somebody wants it to run goes without saying.
    on_its_way = row.wanted == "running" and state in ("pending", "degraded")
    if row.wanted not in ("", state) and state != "finished" and not on_its_way:
        state = f"{row.state} ({row.wanted} wanted)"
    running = "?" if row.roles_running is None else str(row.roles_running)
    mean = "-" if row.mean_return is None else f"{row.mean_return:.1f}"
    by_hand = row.managed_by == "run"
    agents = ", ".join(row.agents[:_SHOWN_AGENTS]) or "-"
    if (more := len(row.agents) - _SHOWN_AGENTS) > 0:
        agents += f" and {more} more"
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
