"""Commands on one experiment: get, diff, pause, resume, scale, stop, delete."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollstream.errors import BadInput, exits_with_a_message
from rollstream.launch_command import warn_without_agents
from rollstream.options import File, Json, Overrides

if TYPE_CHECKING:
    from infra.control.deletion import Belongings
    from infra.control.edits import Count
    from infra.control.launching import Launched
    from schemas.experiment import Experiment
    from schemas.spec_diff import SpecDiff

EXIT_DIFFERS = 1
EXIT_TROUBLE = 2
EXIT_NOT_CONFIRMED = 1
_COUNT = re.compile(r"(\d{1,6})(?:\.\.(\d{1,6}))?")


def _checked(name: str) -> str:
    from rollstream.lines import check_experiment

    check_experiment(name)
    return name


Name = Annotated[str, typer.Argument(help="The experiment's name.", callback=_checked)]
Timeout = Annotated[
    float, typer.Option(min=0, help="How long its roles may take to end, in seconds.")
]

EPILOGS = {
    "get": "Example: rollstream get cartpole-dqn > cartpole-dqn.yaml",
    "diff": "Example: rollstream diff infra/experiments/cartpole-dqn.yaml",
    "pause": "Example: rollstream pause cartpole-dqn",
    "resume": "Example: rollstream resume cartpole-dqn",
    "scale": "Example: rollstream scale cartpole-dqn workers=4 processor=1..2",
    "stop": "Example: rollstream stop cartpole-dqn --timeout 120",
    "delete": "Example: rollstream delete cartpole-dqn --yes",
}


def get(experiment: Name, as_json: Json = False) -> None:
    """Print the spec in force, as YAML that `launch` takes.

    Exit code: 0, or 1 when there is no such experiment.
    """
    import yaml

    from rollstream.client import Client

    with Client() as client:
        found = client.get(experiment)
    values = found.experiment.model_dump(mode="json", by_alias=True)
    about = {
        "run_id": found.run_id,
        "offset": found.offset,
        "managed_by": found.managed_by,
    }
    if as_json:
        print(json.dumps(about | {"experiment": values}))
        return
    print("# " + ", ".join(f"{name}: {value}" for name, value in about.items()))
    print(yaml.safe_dump(values, sort_keys=False), end="")


def diff(
    file: File,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Say what `launch FILE` would change, and which processes that restarts.

    Exit code, as of `diff`: 0 nothing; 1 something, or it is not there yet; 2 trouble:
    it would be refused, or cannot be compared.
    """
    from rollstream.spec_file import load_file

    # Else nobody could tell an error from a difference.
    with exits_with_a_message(EXIT_TROUBLE):
        wanted = load_file(file, overrides)
        found, is_new = _compare(wanted)
    if as_json:
        print(json.dumps(asdict(found) | {"experiment": wanted.name, "new": is_new}))
    elif is_new:
        print(f"{wanted.name}: is not there yet")
    else:
        _show_diff(found)
    if found.refused:
        raise typer.Exit(EXIT_TROUBLE)
    raise typer.Exit(EXIT_DIFFERS if found.changes or is_new else 0)


def pause(experiment: Name, as_json: Json = False) -> None:
    """Let workers end their streams and wait; no process ends.

    Exit code: 0 it is wanted now, 1 there is no such launched experiment.
    """
    _change(experiment, "paused", as_json)


def resume(experiment: Name, as_json: Json = False) -> None:
    """Let an experiment go on that was paused or stopped, or is degraded.

    Exit code: 0 it is wanted now, 1 there is no such launched experiment.
    """
    _change(experiment, "running", as_json)


def scale(
    experiment: Name,
    counts: Annotated[
        list[str],
        typer.Argument(
            metavar="ROLE=N|MIN..MAX...",
            help="workers or processor; MIN..MAX: the number follows the load.",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Change how many processes there are; those that stay are not restarted.

    Where the number follows the load it takes bounds: workers=2..8, or 4..4 to hold it
    there. Exit code: 0 it is wanted now, 1 no such launched experiment, 2 refused.
    """
    from rollstream.client import Client

    with Client() as client:
        done = client.scale(experiment, **dict(map(_count, counts)))
        _say(done, ", ".join(counts), as_json)
        warn_without_agents(client)


def stop(experiment: Name, timeout: Timeout = 60.0, as_json: Json = False) -> None:
    """Stop an experiment, and wait until its roles are gone; `resume` goes on.

    Exit code: 0 they are gone, 1 some were not in time, or there is no such experiment.
    """
    from rollstream.client import Client

    with Client() as client:
        done = client.stop(experiment, timeout, _tell)
    _say(done, "stopped", as_json)


def delete(
    experiment: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    timeout: Timeout = 60.0,
    as_json: Json = False,
) -> None:
    """Stop an experiment and delete its topics, groups, statuses and spec.

    Files of its runs stay on their hosts. Killed in the middle, repeat it. Exit code: 0
    it is gone, 1 it is not, or you said no, 2 nobody could be asked and no --yes.
    """
    from infra.control.deletion import find_belongings
    from rollstream.client import Client

    with Client() as client:
        if not yes:
            _ask(experiment, find_belongings(client.settings, experiment))
        gone = client.delete(experiment, timeout, _tell)
        files = client.settings.data_dir / "experiments" / experiment
    if as_json:
        print(json.dumps({"experiment": experiment, **_listed(gone)}))
        return
    print(f"{experiment} is deleted")
    if files.exists():
        print(f"its files stay: {files}")


def _compare(wanted: Experiment) -> tuple[SpecDiff, bool]:
    """Return what differs from what is in force, and whether nothing is."""
    from infra.control.experiments import UnknownExperiment
    from rollstream.client import Client
    from schemas.spec_diff import SpecDiff, compare

    with Client() as client:
        try:
            known = client.get(wanted.name)
        except UnknownExperiment:
            return SpecDiff((), (), ()), True
    return compare(known.experiment, wanted), False


def _show_diff(found: SpecDiff) -> None:
    from infra.printable import printable

    for change in found.changes:
        print(printable(str(change)))
    for problem in found.refused:
        print(printable(f"refused: {problem}"))
    if found.changes and not found.refused:
        print(f"restarts: {', '.join(found.restarts) or 'no process'}")


def _change(name: str, state: str, as_json: bool) -> None:
    from rollstream.client import Client

    with Client() as client:
        done = client.pause(name) if state == "paused" else client.resume(name)
        _say(done, state, as_json)
        warn_without_agents(client)


def _count(text: str) -> tuple[str, Count]:
    role, _, count = text.partition("=")
    found = _COUNT.fullmatch(count)
    if found is None:
        raise typer.BadParameter(f"expected ROLE=N or ROLE=MIN..MAX, found {text!r}")
    least = int(found[1])
    return role, least if found[2] is None else (least, int(found[2]))


def _say(done: Launched, wanted: str, as_json: bool) -> None:
    published = done.published
    name = published.experiment.name
    if as_json:
        row: dict[str, Any] = {
            "experiment": name,
            "run_id": published.run_id,
            "offset": published.offset,
            "changed": done.changed,
            "state": published.experiment.spec.state,
        }
        print(json.dumps(row))
    else:
        print(f"{name}: {wanted}" + ("" if done.changed else ", as before"))


def _tell(line: str) -> None:
    from infra.printable import printable

    typer.echo(printable(line), err=True)


def _ask(name: str, belongings: Belongings) -> None:
    counts = ", ".join(
        f"{len(each)} {what}" for what, each in _listed(belongings).items()
    )
    what = f"delete {name}: {counts}, and its spec; all its experience is lost"
    if not sys.stdin.isatty():
        raise BadInput(
            f"expected --yes where nobody can be asked, found none: {what}",
            f"`rollstream delete {name} --yes`",
        )
    if not typer.confirm(f"{what}. Do it?", err=True):
        raise typer.Exit(EXIT_NOT_CONFIRMED)


def _listed(belongings: Belongings) -> dict[str, list[str]]:
    return {
        "topics": list(belongings.topics),
        "groups": list(belongings.groups),
        "statuses": list(belongings.statuses),
    }
