"""``rollstream lineage``: what a policy was trained on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.options import Json

if TYPE_CHECKING:
    from pathlib import Path

    from archive.lineage import Lineage, Origin
    from infra.settings import Settings
    from schemas.records import DataRange, PolicyRef

EPILOG = "Example: rollstream lineage cartpole-past --policy-version 40"
_CHECKPOINT = re.compile(r"\d{12}-\d{8}")
_KINDS = {
    "workers": "workers acted",
    "replay": "replayed",
    "dataset": "a dataset of Minari",
    "again": "as above",
    "forgotten": "deleted: whether it was replayed is not known",
}


def lineage(
    experiment: Annotated[str, typer.Argument(help="Whose policy.")],
    policy_version: Annotated[
        int | None,
        typer.Option(min=0, help="Which policy; else the newest that is known of."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a policy was trained on, back to the experiments that acted.

    Learners say it with each checkpoint: of a version between two, it is what the next
    one had, and so at most that. Offsets are those of trajectories; not all between
    them need be of the run. Exit code: 0, or 1 when it is not known.
    """
    # Here, not above: other commands need none of it.
    from archive.lineage import trace
    from archive.lineage_topic import ask_topics
    from infra.control.experiments import read_experiment
    from rollstream.lines import check_experiment
    from rollstream.machine import running

    check_experiment(experiment)
    settings = running()
    read_experiment(settings, experiment)  # says what there is, when it is not
    found = trace(experiment, policy_version, ask_topics(settings))
    checkpoints = _checkpoints(settings, found)
    if as_json:
        print(json.dumps({**found.to_json(), "checkpoints": checkpoints}))
        return
    for line in _lines(found, checkpoints):
        typer.echo(line)


def _checkpoints(settings: Settings, found: Lineage) -> list[str]:
    """Return the names of the run's checkpoints on this machine, oldest first."""
    from infra.control.experiments import run_directory

    folder: Path = (
        run_directory(settings, found.experiment, found.run_id) / "checkpoints"
    )
    if not folder.is_dir():
        return []
    return sorted(
        each.name for each in folder.iterdir() if _CHECKPOINT.fullmatch(each.name)
    )


def _lines(found: Lineage, checkpoints: list[str]) -> Iterator[str]:
    from infra.printable import printable

    name = f"{found.experiment} run {printable(found.run_id)}"
    if found.is_exact:
        policy, most = _policy(found.policy), ""
    else:
        policy, most = f"version {found.version}", "at most "
    yield f"{name}, policy {policy}: trained on {most}{found.env_steps:,} steps"
    if most:
        yield f"as {_policy(found.policy)} was, the first with a checkpoint after it"
    yield f"updates: {found.train_step:,}"
    yield "checkpoints on this machine: " + (", ".join(checkpoints) or "none")
    for origin in found.origins:
        for line in _tree(origin, ""):
            yield printable(line)


def _tree(origin: Origin, indent: str) -> Iterator[str]:
    run = "" if origin.run_id is None else f" run {origin.run_id}"
    if origin.kind == "dataset":
        run = f" {origin.run_id}"
    blank = f", {origin.blank_steps:,} blank" if origin.blank_steps else ""
    unfinished = "" if origin.done else ", not to its end yet"
    yield (
        f"{indent}{origin.experiment}{run}: {origin.env_steps:,} steps{blank}"
        f"{unfinished} ({_KINDS[origin.kind]})"
    )
    indent += "  "
    if origin.selection not in ("", "{}"):
        yield f"{indent}chosen: {origin.selection}"
    for each in origin.data:
        yield f"{indent}{_range(each)}"
    for inner in origin.origins:
        yield from _tree(inner, f"{indent}<- ")


def _range(data: DataRange) -> str:
    where = f"{data.topic}[{data.partition}]"
    if data.next_offset <= data.first_offset:
        return f"{where} nothing"
    first, last = data.first_policy, data.last_policy
    policies = _policy(first) if first == last else f"{_policy(first)}..{_policy(last)}"
    return (
        f"{where} offsets {data.first_offset} to {data.next_offset - 1}: "
        f"{data.env_steps:,} steps by {policies}"
    )


def _policy(policy: PolicyRef) -> str:
    if policy.version < 0:
        return "no policy"
    return f"version {policy.version} (epoch {policy.epoch})"
