"""``rollstream lag``: how far behind consumer groups are, ours and others'."""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
from typer.exceptions import TyperException

from rollstream.errors import exits_with_a_message

if TYPE_CHECKING:
    from infra.monitoring.lag.model import LagReport
    from rollstream.lag_groups import Choice
    from rollstream.lag_rows import LagRow

EPILOG = "Example: rollstream lag cartpole-dqn -w"
EXIT_ERROR = 3
"""2 says that a group does badly: what cannot be asked is told apart from that."""

FORMATS = ("text", "wide", "json", "csv")
SHOWN_REASONS = 8


class LagCommand(typer.core.TyperCommand):
    """A command whose wrong usage has its exit code, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; raises what Typer raises."""
        try:
            return super().parse_args(ctx, args)
        except TyperException as exc:
            exc.exit_code = EXIT_ERROR
            raise


def _checked(name: str | None) -> str | None:
    from rollstream.lines import check_experiment

    if name is not None:
        check_experiment(name)
    return name


def _check_format(name: str) -> str:
    from rollstream.lines import check_choice

    check_choice("format", name, FORMATS)
    return name


def _compiled(pattern: str | None) -> str | None:
    try:
        re.compile(pattern or "")
    except re.error as exc:
        raise typer.BadParameter(f"expected a regular expression: {exc}") from exc
    return pattern


def lag(
    experiment: Annotated[
        str | None,
        typer.Argument(help="Only this one's groups.", callback=_checked),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C.")
    ] = False,
    partitions: Annotated[
        bool, typer.Option("--partitions", "-p", help="A row of each partition.")
    ] = False,
    regex: Annotated[
        str | None,
        typer.Option(
            "--regex",
            "-r",
            metavar="REGEX",
            help="Only groups in whose id this is found.",
            callback=_compiled,
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="|".join(FORMATS),
            help="Or all columns, or one object of all partitions, or rows.",
            callback=_check_format,
        ),
    ] = "text",
    as_json: Annotated[
        bool, typer.Option("--json", help="The same as --format json.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds between looks, with -w.")
    ] = 1.0,
) -> None:
    """Show how far behind consumer groups are, the worst first; of any cluster.

    CURRENT-OFFSET is the first that is not handled yet, as processors and learners tell
    it, and of all other groups the committed one. Marks of transactions are no lag, nor
    what is held back from being acknowledged. LAG-S is for how long the oldest record
    that is not handled has been there, ~ when it is interpolated. Without -p, a row is
    of all partitions of a topic that a group reads.

    Rates and states such as STALLED take several looks: -w. Exit code, without -w: 0
    all is well, 1 something is worth a look (WARN, NO_COMMIT), 2 a group does badly
    (STALLED, STOPPED, REWIND, LOST), 3 it cannot be told: no brokers, no such
    experiment or group, wrong usage. With -w 130, after Ctrl-C.
    """
    form = "json" if as_json else form
    with exits_with_a_message(EXIT_ERROR, refused=EXIT_ERROR):
        from rollstream.lag_groups import choose
        from rollstream.machine import running

        with closing(choose(running(), experiment, regex)) as choice:
            if watch:
                from rollstream.lag_watch import watch_lag

                watch_lag(choice, form, by_partition=partitions, every_s=every)
            else:
                raise typer.Exit(_show_once(choice, form, by_partition=partitions))


def _show_once(choice: Choice, form: str, *, by_partition: bool) -> int:
    from rollstream.lag_rows import exit_code, rows_of

    report = choice.look()
    rows = rows_of(report, by_partition=by_partition)
    print_report(report, rows, form, by_partition=by_partition)
    if report.problem:
        typer.echo(f"rollstream: {report.problem}", err=True)
        return EXIT_ERROR
    if not rows:
        typer.echo(f"rollstream: {choice.nothing}", err=True)
        return EXIT_ERROR if choice.is_narrow else 0
    return exit_code(rows)


def print_report(
    report: LagReport,
    rows: list[LagRow],
    form: str,
    *,
    by_partition: bool,
    with_header: bool = True,
) -> None:
    """Print a report in a format.

    Args:
        report: what was seen.
        rows: the same in rows.
        form: one of FORMATS.
        by_partition: a row is of a partition.
        with_header: of CSV.
    """
    if form == "json":
        from infra.monitoring.lag.plain import plain_report

        print(json.dumps(plain_report(report)), flush=True)
    elif form == "csv":
        from rollstream.lag_table import CSV_HEADER, csv_lines

        if with_header:
            print(",".join(CSV_HEADER))
        print(csv_lines(report.at_s, rows), end="", flush=True)
    else:
        _print_table(rows, wide=form == "wide", by_partition=by_partition)


def _print_table(rows: list[LagRow], *, wide: bool, by_partition: bool) -> None:
    from rollstream.lag_columns import columns_of
    from rollstream.lag_table import (
        coloured,
        fitted_lines,
        reason_line,
        table_lines,
    )

    columns = columns_of(wide=wide, by_partition=by_partition)
    if not sys.stdout.isatty():
        print("\n".join(table_lines(rows, columns)), flush=True)
    else:
        from rich.console import Console

        console = Console(highlight=False, soft_wrap=True)
        lines = fitted_lines(rows, columns, console.width, may_wrap=True)
        console.print(coloured(lines, rows))
    troubled = [row for row in rows if row.severity]
    if wide or not troubled:
        return
    print()
    for row in troubled[:SHOWN_REASONS]:
        print(reason_line(row))
    if len(troubled) > SHOWN_REASONS:
        print(f"... and {len(troubled) - SHOWN_REASONS} more; --format wide")
    sys.stdout.flush()
