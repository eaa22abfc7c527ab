"""Rows of policy versions -> a table, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table

from rollstream.ages import age
from rollstream.tables import table_console

if TYPE_CHECKING:
    from rollstream.policy_rows import Overview, PolicyRow

PIPE_WIDTH = 200
_LEFT = ("KEPT AS",)
_ANY_WIDTH = 100_000
_COLUMNS = (
    "VERSION", "EPOCH", "UPDATES", "ENV STEPS", "AGE", "BYTES", "PARAMETERS",
    "RETURN", "LOWEST", "HIGHEST", "EPISODES", "KEPT AS",
)  # fmt: skip
_LEFT_OUT_FIRST = ("PARAMETERS", "BYTES", "EPOCH", "ENV STEPS", "LOWEST", "HIGHEST")


def print_table(found: Overview, count: int) -> None:
    """Print the newest ``count`` versions, and the best in any case; 0: all."""
    console = table_console(PIPE_WIDTH)
    console.print(make_table(found, count, console))


def make_table(found: Overview, count: int, console: Console) -> Table:
    """Return a table of whole cells: of what does not fit, whole columns are left out.

    JSON has all of them.
    """
    left_out: set[str] = set()
    unbound = console.options.update(width=_ANY_WIDTH)
    for column in ("", *_LEFT_OUT_FIRST):
        left_out.add(column)
        table = _table(found, count, left_out)
        if console.measure(table, options=unbound).maximum <= console.width:
            break
    return table


def _table(found: Overview, count: int, left_out: set[str]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    shown = [i for i, column in enumerate(_COLUMNS) if column not in left_out]
    for i in shown:
        justify: Literal["left", "right"] = "left" if _COLUMNS[i] in _LEFT else "right"
        table.add_column(_COLUMNS[i], justify=justify, no_wrap=True)
    for row in shown_rows(found, count):
        cells = _cells(row)
        style = "green" if "best" in row.kept_as else None
        table.add_row(*(cells[i] for i in shown), style=style)
    return table


def shown_rows(found: Overview, count: int) -> list[PolicyRow]:
    """Return the newest ``count`` rows, and the best one where it is older."""
    if not count:
        return list(found.rows)
    rest = [row for row in found.rows[count:] if "best" in row.kept_as]
    return [*found.rows[:count], *rest]


def notes(found: Overview, count: int) -> Iterator[str]:
    """Yield what has to be known beside the table."""
    if not found.rows:
        yield f"{found.experiment}: no policy yet of run {found.run_id}"
    elif not found.has_evaluator:
        yield "nobody evaluates: spec.evaluator.replicas is 0, so none is the best"
    left_out = len(found.rows) - len(shown_rows(found, count))
    if left_out:
        yield f"{left_out:,} older ones are not shown: -n 0 shows all"
    if found.gone:
        yield (
            f"{len(found.gone):,} are told of, but their graph or parts of their "
            "tensors are gone"
        )
    if found.refused:
        yield f"{found.refused:,} records cannot be read"


def _cells(row: PolicyRow) -> list[str]:
    found = row.evaluation
    judged = ["-"] * 4
    if found is not None:
        figures = (found.mean, found.least, found.most)
        judged = [*(f"{each:.1f}" for each in figures), f"{found.episodes:,}"]
    return [
        str(row.version),
        str(row.epoch),
        f"{row.train_step:,}",
        "-" if row.env_steps is None else f"{row.env_steps:,}",
        age(row.age_ms),
        f"{row.bytes:,}",
        "-" if row.parameters is None else f"{row.parameters:,}",
        *judged,
        ", ".join(row.kept_as),
    ]
