"""``rollstream status``: an experiment as its topics know it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.monitoring.lag.model import LagReport
from infra.monitoring.lag.plain import plain_group
from infra.monitoring.progress import return_text
from infra.monitoring.role_views import RoleView
from infra.monitoring.status import ExperimentStatus, read_status
from infra.printable import printable
from infra.settings import Settings
from rollstream.ages import age
from rollstream.alerts import each_once, troubles
from rollstream.hints import NO_AGENT
from rollstream.lag_columns import GROUP_COLUMNS
from rollstream.lag_rows import LagRow, rows_of
from rollstream.lag_table import coloured, table_lines
from rollstream.tables import table_console

# What is said once; all else is repeated every two seconds.
_LASTING = ("", "stopped")
_SILENT_MS = 15_000
EXIT_OK = 0
EXIT_ALERTS = 3
SHOWN_ALERTS = 5
SHOWN_TROUBLES = 12
PIPE_WIDTH = 160


def status(settings: Settings, experiment: str, *, as_json: bool) -> int:
    """Print the status of an experiment; return the exit code.

    Raises:
        UnknownExperiment: there is none of that name.
    """
    found = read_status(settings, experiment)
    if as_json:
        print(json.dumps(to_json(found)))
    else:
        _show(table_console(PIPE_WIDTH), found)
    return EXIT_ALERTS if found.alerts else EXIT_OK


def to_json(found: ExperimentStatus) -> dict[str, object]:
    """Return the status as JSON-able values, with the sums of each group."""
    values = asdict(found)
    # A status is of no span of time: these are of a whole run's end.
    for name in ("wall_s", "env_steps_per_s", "reached"):
        del values["summary"][name]
    values["groups"] = [
        {"role": group.role, "topic": group.topic, **plain_group(group.seen)}
        for group in found.groups
    ]
    return values


def _show(console: Console, found: ExperimentStatus) -> None:
    for name, value in _rows(found).items():
        _print(console, f"{name:<16}{value}")
    if found.lacks_agents:
        _print(console, NO_AGENT, style="yellow")
    console.print()
    console.print(_roles(found))
    groups = _groups(found)
    console.print()
    for text in coloured(table_lines(groups, GROUP_COLUMNS), groups).split():
        console.print(text, soft_wrap=True)
    alerts = each_once(found.alerts)
    shown = alerts[:SHOWN_ALERTS]
    lines = [line for role in found.roles for line in troubles(role, shown)]
    for line in lines[:SHOWN_TROUBLES]:
        _print(console, line, style="yellow")
    if len(lines) > SHOWN_TROUBLES:
        console.print(f"... and {len(lines) - SHOWN_TROUBLES} more lines; --json")
    for line in _group_troubles(found, groups):
        _print(console, line, style="yellow")
    if shown:
        console.print()
    for alert in shown:
        _print(console, str(alert), style="red")
    if len(alerts) > SHOWN_ALERTS:
        console.print(f"... and {len(alerts) - SHOWN_ALERTS} before; --json")


def _print(console: Console, line: str, style: str | None = None) -> None:
    # Not folded, nor taken for markup: names and reasons come from topics.
    console.print(printable(line), markup=False, soft_wrap=True, style=style)


def _rows(found: ExperimentStatus) -> dict[str, str]:
    summary = found.summary
    mean = summary.eval_return_mean
    put_back = f"{found.letters_put_back:,} put back"
    return {
        "experiment": f"{found.experiment}, run {found.run_id}",
        "state": f"{summary.state}: {summary.reason}{_wanted(found)}",
        "agents": _listed(found.agents),
        "pending": _listed(found.pending),
        "env steps": f"{summary.env_steps:,}",
        "updates": f"{summary.updates:,}",
        "policy version": summary.policy,
        "mean return": "-" if mean is None else f"{return_text(mean)} (greedy)",
        "lost": f"{summary.lost_steps:,} steps ({summary.recovered_steps:,} recovered)",
        "undelivered": f"{summary.undelivered_steps:,} steps",
        "expired": f"{summary.expired_records:,} records, deleted unread",
        "duplicates": f"{summary.duplicate_steps:,} steps, left out",
        "stale": f"{summary.stale_steps:,} steps of too old policies, left out",
        "unrestorable": f"{summary.unrestorable_rows:,} rows",
        "dead letters": f"{found.letters:,} ({put_back})",
        "alerts": f"{len(found.alerts):,}",
    }


def _wanted(found: ExperimentStatus) -> str:
    """What is wanted, where that is not what is: who runs it decides, or it is over."""
    state = found.summary.state
    is_over = state == "finished" or found.managed_by == "run"
    return "" if is_over or found.wanted == state else f" (wanted: {found.wanted})"


def _roles(found: ExperimentStatus) -> Table:
    table = _table(
        "ROLE", "STATE", "RESTARTS", "HOST", "PID", "STARTED", "LAST METRICS"
    )
    for role in found.roles:
        table.add_row(
            Text(printable(f"{role.role}/{role.index}")),
            Text(printable(_state_of(role))),
            str(role.restarts),
            Text(printable(role.host)),
            str(role.pid) if role.pid >= 0 else "-",
            _ago(role.started_age_ms),
            _ago(role.metrics_age_ms),
        )
    return table


def _state_of(role: RoleView) -> str:
    """What its agent said last; an agent that is gone says no more."""
    silent_ms = role.status_age_ms or 0
    if role.state not in _LASTING and silent_ms > _SILENT_MS:
        return f"{role.state}, {age(silent_ms)} ago"
    return role.state or "-"


def _listed(names: tuple[str, ...] | None) -> str:
    if names is None:
        return "not known: ZooKeeper does not answer"
    return ", ".join(names) or "-"


def _groups(found: ExperimentStatus) -> list[LagRow]:
    """Return a row of each role that reads, though nothing may be known of it."""
    return [
        replace(row, group=group.role, topic=row.topic or group.topic)
        for group in found.groups
        for row in rows_of(LagReport(0.0, (group.seen,)), by_partition=False)
    ]


def _group_troubles(found: ExperimentStatus, rows: list[LagRow]) -> list[str]:
    lines = [f"{row.group}: {row.words}" for row in rows if row.severity]
    for group in found.groups:
        places = [p.place.partition for p in group.seen.partitions if p.open_records]
        if places:
            waits = f"an open transaction holds back records of {places}"
            lines.append(f"{group.role}: {waits}")
    return lines


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _ago(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else f"{age(milliseconds)} ago"
