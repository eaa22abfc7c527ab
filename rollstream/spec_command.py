"""``rollstream schema`` and ``init``: help for people who write experiments."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Annotated

import psutil
import typer

from infra.errors import RollstreamError
from infra.settings import Settings, load_settings
from rollstream.machine import try_here, with_modules
from rollstream.options import EnvModule, Json
from schemas.algorithms import BUILT_IN
from schemas.experiment import EnvSpec, SpecError, from_values
from schemas.spec_text import load_yaml
from schemas.topics import check_name

SCHEMA_FILE = "rollstream.schema.json"
SCHEMA_EXAMPLE = f"Example: rollstream schema > {SCHEMA_FILE}"
INIT_EXAMPLE = "Example: rollstream init --env LunarLander-v3 lander.yaml"


class FileExists(RollstreamError):
    """A file that would be overwritten."""


def schema() -> None:
    """Print the JSON Schema of experiments, for editors to complete and check with."""
    # Here, not above: nothing else needs it.
    from schemas.json_schema import experiment_schema

    print(json.dumps(experiment_schema(), indent=2))


def init(
    file: Annotated[
        Path | None, typer.Argument(help="What to write; NAME.yaml when left out.")
    ] = None,
    env: Annotated[
        str, typer.Option(help="An environment's id, as in Gymnasium.")
    ] = "CartPole-v1",
    name: Annotated[
        str | None,
        typer.Option(help="The experiment's; that of FILE or ID when left out."),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help=f"How it learns: {', '.join(BUILT_IN)}; left out: in a way that fits.",
            metavar="<str>",
        ),
    ] = None,
    force: Annotated[bool, typer.Option(help="Overwrite a file.")] = False,
    env_module: EnvModule = None,
    as_json: Json = False,
) -> None:
    """Write a commented experiment to start from, for one environment.

    The environment is tried first, and sizes are chosen that fit it. Exit code: 0
    written, 1 the file exists, 2 there is no such environment, or it cannot be learnt.
    """
    settings = with_modules(load_settings(), env_module)
    name = _name(name, file, env)
    file = file or Path(f"{name}.yaml")
    has_schema_file = file.with_name(SCHEMA_FILE).exists()
    text = _starter(settings, name, env, algorithm, has_schema_file=has_schema_file)
    _write(file, text, force=force)
    chosen = from_values(load_yaml(text)).spec.learner.algorithm
    if as_json:
        found = {"file": str(file), "name": name, "env": env, "algorithm": chosen}
        print(json.dumps(found))
        return
    print(f"{file}: {name}, {env}, learns by {chosen}")
    words = [str(file)]
    for module in env_module or ():
        words += ["--env-module", module]
    print(f"next: rollstream validate {shlex.join(words)}")
    print(f"      rollstream run {shlex.join(words)}")


def _name(name: str | None, file: Path | None, env: str) -> str:
    """Return the experiment's name: as said, or of the file, or of the environment."""
    if name is not None:
        try:
            return check_name(name)
        except ValueError as exc:
            raise SpecError([f"--name: {exc}"]) from exc
    source = file.stem if file else re.sub(r"-v\d+$", "", env.rpartition("/")[2])
    slug = re.sub("[^a-z0-9]+", "-", source.lower())[:63].strip("-")
    return slug or "experiment"


def _starter(
    settings: Settings,
    name: str,
    env_id: str,
    algorithm: str | None,
    *,
    has_schema_file: bool,
) -> str:
    # Here, not above: gymnasium takes a quarter of a second to import.
    from producers.validation import goal_of
    from rollstream.starter import starter

    if algorithm is not None and algorithm not in BUILT_IN:
        raise SpecError(
            [f"algorithm: expected one of {', '.join(BUILT_IN)}, found {algorithm!r}"]
        )
    env = _env_spec(env_id)
    return starter(
        name,
        try_here(env, settings),
        algorithm=algorithm,
        goal=goal_of(env, settings),
        memory_bytes=psutil.virtual_memory().total,
        has_schema_file=has_schema_file,
    )


def _env_spec(env_id: str) -> EnvSpec:
    """Return the environment's part of a spec; raises SpecError."""
    values = {
        "apiVersion": "rollstream/v1",
        "kind": "Experiment",
        "metadata": {"name": "any"},
        "spec": {"env": {"id": env_id}},
    }
    return from_values(values).spec.env


def _write(file: Path, text: str, *, force: bool) -> None:
    try:
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError as exc:
        raise FileExists(
            f"{file}: expected no such file, found one", "--force overwrites it"
        ) from exc
    except OSError as exc:
        raise RollstreamError(f"{file}: cannot be written: {exc.strerror}") from exc
