"""``rollstream launch``: hand experiments to the agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.errors import RollstreamError
from rollstream.hints import NO_AGENT
from rollstream.options import File, Json, Overrides
from schemas.experiment import Experiment, SpecError

if TYPE_CHECKING:
    from rich.console import Console

    from infra.control.launching import Launched
    from rollstream.client import Client

Row = dict[str, Any]

EPILOG = (
    "Example: rollstream launch infra/experiments/cartpole-dqn.yaml "
    "--set spec.workers.replicas=4 --follow"
)


def launch(
    file: File,
    overrides: Overrides = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=A,B", help="One experiment for each value; repeatable."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="One experiment for each of so many seeds."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show it until it is finished.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option(help="Start over under a new run id; old data stays.")
    ] = False,
    env_module: Annotated[
        list[str] | None,
        typer.Option(help="Import this module of environments to check; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Hand an experiment to the agents, and return; with --follow, show it.

    Launched again with the same spec, nothing changes; with another, its run goes on as
    that. Ctrl-C of --follow ends the showing only. Exit code: 0 launched, or the target
    was reached; with --follow 3 when a limit or `rollstream stop` ended it first, 130
    after Ctrl-C; 1 on errors, also when only some of a sweep are launched (--json says
    which), 2 when the spec is refused.
    """
    # Here, not above: other commands need none of it.
    from rich.console import Console

    from rollstream.client import Client
    from rollstream.machine import with_modules

    console = Console(stderr=as_json, highlight=False)
    experiments = _experiments(file, overrides or [], sweep or [], seeds)
    if follow and len(experiments) > 1:
        raise typer.BadParameter("--follow shows one experiment: leave it out")
    with Client() as client:
        client.settings = with_modules(client.settings, env_module)
        client.check(*experiments)  # all, before the first is published
        are_many = bool(sweep or seeds)
        rows = _launch_each(
            client, console, experiments, fresh, tell_half=as_json and are_many
        )
        if follow:
            raise typer.Exit(_follow(client, experiments[0].name, console, as_json))
        warn_without_agents(client)
    if as_json:
        print(json.dumps(rows if are_many else rows[0]))


def warn_without_agents(client: Client) -> None:
    """Say on stderr when nobody would do what is wanted."""
    if not client.agents():
        typer.echo(NO_AGENT, err=True)


def _experiments(
    file: Path, overrides: list[str], sweep: list[str], seeds: int | None
) -> list[Experiment]:
    from rollstream.overrides import apply_overrides
    from rollstream.spec_file import load_file, read_values
    from rollstream.sweeps import expand

    if not sweep and seeds is None:
        return [load_file(file, overrides)]
    return list(expand(apply_overrides(read_values(file), overrides), sweep, seeds))


def _launch_each(
    client: Client,
    console: Console,
    experiments: list[Experiment],
    fresh: bool,
    *,
    tell_half: bool,
) -> list[Row]:
    """Launch them; with ``tell_half`` JSON says how far that went where it fails."""
    rows: list[Row] = []
    for experiment in experiments:
        try:
            rows.append(_row(client, client.launch(experiment, fresh=fresh)))
        except (RollstreamError, SpecError) as exc:
            if tell_half:
                failed = {"experiment": experiment.name, "error": str(exc)}
                print(json.dumps([*rows, failed]))
            if rows:
                raise _half_launched(experiment, len(rows), exc) from exc
            raise
        _say(console, rows[-1])
    return rows


def _half_launched(
    failed: Experiment, count: int, exc: RollstreamError | SpecError
) -> RollstreamError:
    problem, mend = (
        (exc.problem, exc.mend) if isinstance(exc, RollstreamError) else (str(exc), "")
    )
    return RollstreamError(
        f"{failed.name} is not launched, after {count} that are: {problem}",
        f"{mend}; then repeat the command" if mend else "",
    )


def _row(client: Client, launched: Launched) -> Row:
    from infra.control.statuses import read_summary

    published = launched.published
    name = published.experiment.name
    done = None
    if not launched.changed:
        done = read_summary(client.settings, name, published.run_id)
    return {
        "experiment": name,
        "run_id": published.run_id,
        "offset": published.offset,
        "changed": launched.changed,
        "finished": done is not None,
    }


def _say(console: Console, row: Row) -> None:
    what = "launched" if row["changed"] else "is launched already, and unchanged"
    if row["finished"]:
        what = "is finished already; --fresh starts over"
    console.print(
        f"{row['experiment']} {what} (run {row['run_id']})",
        markup=False,
        soft_wrap=True,
    )


def _follow(client: Client, name: str, console: Console, as_json: bool) -> int:
    from rollstream.following import follow

    moment, code = follow(client, name, console)
    if as_json and moment.summary is not None:
        print(moment.summary.to_json())
    return code
