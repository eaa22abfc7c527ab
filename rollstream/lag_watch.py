"""``rollstream lag -w``: looks, one after the other, until Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from infra.monitoring.lag.model import LagReport
from infra.printable import printable
from rollstream.lag_columns import columns_of
from rollstream.lag_command import print_report
from rollstream.lag_rows import LagRow, rows_of
from rollstream.lag_table import coloured, fitted_lines, reason_line

if TYPE_CHECKING:
    from infra.monitoring.lag.monitor import LagMonitor
    from rollstream.lag_groups import Choice

# In between Ctrl-C is heard.
_WAIT_S = 0.2
# What the screen needs beside the rows: the line above, the header, what is left out,
# the reasons with a line before them.
_OTHER_LINES = 4
_SHOWN_REASONS = 4


def watch_lag(choice: Choice, form: str, *, by_partition: bool, every_s: float) -> None:
    """Show each look; returns only by an exception, as of Ctrl-C."""
    console = Console(highlight=False)
    with choice.looking(every_s) as monitor:
        if form in ("text", "wide") and console.is_terminal:
            _draw(choice, monitor, console, form, by_partition)
        else:
            _print(choice, monitor, form, by_partition)


def _draw(
    choice: Choice, monitor: LagMonitor, console: Console, form: str, by_partition: bool
) -> None:
    with Live(console=console, auto_refresh=False) as live:
        live.update(Text("looking ...", "dim"), refresh=True)
        for report in _reports(choice, monitor):
            rows = rows_of(report, by_partition=by_partition)
            shown = screen(
                report,
                rows,
                wide=form == "wide",
                by_partition=by_partition,
                width=console.width,
                height=console.height,
            )
            live.update(shown, refresh=True)


def _print(choice: Choice, monitor: LagMonitor, form: str, by_partition: bool) -> None:
    is_first = True
    for report in _reports(choice, monitor):
        if report.problem:
            typer.echo(f"rollstream: {printable(report.problem)}", err=True)
        if report.problem and form != "json":
            continue  # the rows are those of before
        if form in ("text", "wide"):
            print(title(report))
        rows = rows_of(report, by_partition=by_partition)
        print_report(
            report, rows, form, by_partition=by_partition, with_header=is_first
        )
        if form in ("text", "wide"):
            print(flush=True)
        is_first = False


def _reports(choice: Choice, monitor: LagMonitor) -> Iterator[LagReport]:
    """Yield each new look, and each new problem once."""
    at_s, problem = 0.0, ""
    while True:
        report = monitor.wait_for_newer(at_s, _WAIT_S)
        if report.at_s > at_s or report.problem != problem:
            at_s, problem = report.at_s, report.problem
            yield choice.shown(report)


def screen(
    report: LagReport,
    rows: list[LagRow],
    *,
    wide: bool,
    by_partition: bool,
    width: int,
    height: int,
) -> Group:
    """Return what fits a terminal: the worst rows, and reasons of the very worst."""
    troubled = [row for row in rows if row.severity]
    reasons = [] if wide else troubled[:_SHOWN_REASONS]
    room = max(height - _OTHER_LINES - (len(reasons) + 1 if reasons else 0), 1)
    shown = rows[:room]
    columns = columns_of(wide=wide, by_partition=by_partition)
    lines = fitted_lines(shown, columns, width, may_wrap=False)
    parts = [Text(title(report), "dim", no_wrap=True, overflow="ellipsis")]
    if report.problem:
        parts[0].append(f"  {printable(report.problem)}", "bold red")
    parts.append(coloured(lines, shown))
    if len(rows) > len(shown):
        parts.append(Text(f"... and {len(rows) - len(shown):,} more", "dim"))
    if reasons:
        words = "\n".join(map(reason_line, reasons))
        parts += [Text(), Text(words, no_wrap=True, overflow="ellipsis")]
    return Group(*parts)


def title(report: LagReport) -> str:
    """Return when a look was, how much it saw, and how long it took."""
    groups = len(report.groups)
    at = datetime.fromtimestamp(report.at_s, UTC).isoformat(timespec="seconds")
    return (
        f"{at.replace('+00:00', 'Z')}  {groups:,} group{'' if groups == 1 else 's'}, "
        f"seen in {report.took_s:.2f} s"
    )
