"""``rollstream events``: what an experiment's roles have told, and tell."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated

import typer

from infra.control.experiments import read_experiment
from infra.errors import RollstreamError
from infra.monitoring.event_kinds import KINDS, SEVERITIES
from infra.monitoring.event_log import EventLog, LoggedEvent, OfNewestRun
from infra.printable import printable
from infra.settings import Settings
from rollstream.lines import (
    COLOURS,
    check_choice,
    check_experiment,
    line_console,
    show_time,
)
from rollstream.machine import running
from schemas.records import Event

Wanted = Callable[[Event], bool]

EPILOG = "Example: rollstream events cartpole-dqn -f --severity warning"


def _list_kinds(asked: bool) -> None:
    if asked:
        for kind, meaning in KINDS.items():
            print(f"{kind:<24} {meaning}")
        raise typer.Exit


def events(
    experiment: Annotated[str, typer.Argument(help="The experiment's name.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")
    ] = False,
    count: Annotated[int, typer.Option("-n", min=0, help="How many old ones.")] = 50,
    severity: Annotated[
        str, typer.Option(help="info, warning or alert: no less than that.")
    ] = "info",
    kind: Annotated[str | None, typer.Option(help="Only of this kind.")] = None,
    role: Annotated[
        str | None,
        typer.Option(help="Only of this role, or of ROLE/INDEX; `experiment`."),
    ] = None,
    all_runs: Annotated[
        bool, typer.Option("--all", help="Of earlier runs, too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each, only that.")
    ] = False,
    list_kinds: Annotated[
        bool,
        typer.Option(
            "--kinds",
            callback=_list_kinds,
            is_eager=True,
            help="Say what kinds there are and what each means, only that.",
        ),
    ] = False,
) -> None:
    """Show the events of an experiment's newest run, newest last.

    They are in its topic of events; none of its processes need live. Exit code: 0 done,
    1 there is no such experiment or it cannot be read, 130 after Ctrl-C.
    """
    check_experiment(experiment)
    check_choice("severity", severity, SEVERITIES)
    if kind is not None:
        check_choice("kind", kind, KINDS, "those that `--kinds` lists")
    show = _show_json if as_json else _show_line()
    wanted = make_filter(severity, kind, role)
    settings = running()
    is_empty = True
    for found in read_events(
        settings, experiment, wanted, count, follow=follow, all_runs=all_runs
    ):
        show(found)
        is_empty = False
    if is_empty:
        more = "" if all_runs else "; --all shows those of earlier runs, too"
        print(f"rollstream: no such events of {experiment}{more}", file=sys.stderr)


def make_filter(severity: str, kind: str | None, role: str | None) -> Wanted:
    """Return what tells whether an event is one of those that are asked for."""
    enough = SEVERITIES[[*SEVERITIES].index(severity) :]  # type: ignore[arg-type]

    def wanted(event: Event) -> bool:
        return (
            # One that we do not know may be the worst.
            (event.severity in enough or event.severity not in SEVERITIES)
            and kind in (None, event.kind)
            and role in (None, event.role, f"{event.role}/{event.index}")
        )

    return wanted


def read_events(
    settings: Settings,
    experiment: str,
    wanted: Wanted,
    count: int,
    *,
    follow: bool,
    all_runs: bool,
) -> Iterator[LoggedEvent]:
    """Yield the last events, oldest first, and with ``follow`` those that come.

    Raises:
        UnknownExperiment: there is none of that name.
        RollstreamError: its events cannot be read.
    """
    # With all runs it may be deleted, and its events still be there.
    run_id = None if all_runs else read_experiment(settings, experiment).run_id
    log = EventLog(settings, experiment)
    last: deque[LoggedEvent] = deque(maxlen=count)
    older = set()
    for found in log.read():
        if run_id not in (None, found.event.run_id):
            older.add(found.event.run_id)
        elif wanted(found.event):
            last.append(found)
    yield from last
    if not follow:
        return
    is_of_run = _follow_runs(settings, experiment, run_id, older)
    for new in log.follow():
        if new and wanted(new.event) and is_of_run(new.event):
            yield new


def _follow_runs(
    settings: Settings, experiment: str, run_id: str | None, older: set[str]
) -> Wanted:
    if run_id is None:
        return lambda event: True

    def read_newest() -> str:
        # The brokers may be away, or the experiment deleted: then it is as it was.
        with suppress(RollstreamError):
            return read_experiment(settings, experiment).run_id
        return run_id

    return OfNewestRun(run_id, older, read_newest)


def to_json(found: LoggedEvent) -> dict[str, object]:
    """Return an event as JSON-able values."""
    event = found.event
    return {
        "time": show_time(found.at_ms),
        "offset": found.offset,
        "experiment": event.experiment,
        "run_id": event.run_id,
        "severity": event.severity,
        "role": event.role,
        "index": event.index,
        "kind": event.kind,
        "reason": event.reason,
    }


def _show_json(found: LoggedEvent) -> None:
    print(json.dumps(to_json(found)), flush=True)


def _show_line() -> Callable[[LoggedEvent], None]:
    from rich.text import Text

    console = line_console()

    def show(found: LoggedEvent) -> None:
        event = found.event
        who = printable(f"{event.role}/{event.index}")
        severity = printable(event.severity)
        line = Text.assemble(
            (show_time(found.at_ms), "dim"),
            "  ",
            (f"{severity:<7}", COLOURS.get(severity, "")),
            "  ",
            (f"{who:<12}", COLOURS.get(event.role, "")),
            "  ",
            (printable(event.kind), "bold"),
            f": {printable(event.reason)}",
        )
        console.print(line, soft_wrap=True)

    return show
