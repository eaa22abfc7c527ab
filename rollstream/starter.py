"""An environment -> a commented file to start an experiment from; pure."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from rollstream.starter_values import role_values, usual_algorithm
from schemas.experiment import Experiment, SpecError, from_values
from schemas.fit import check_fit
from schemas.records import EnvDescription
from schemas.spec_text import load_yaml

SCHEMA_FILE = "rollstream.schema.json"
MODELINE = f"# yaml-language-server: $schema={SCHEMA_FILE}"
_HOW = """\
# An experiment of rollstream. `rollstream validate FILE` says whether it can run here,
# `rollstream run FILE` runs it.
"""
_EDITORS = f"""\
# For completion in an editor: rollstream schema > {SCHEMA_FILE}
# and as the first line of this file:
#   {MODELINE}
"""
_WIDTH = 88
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9/_.-]*")
# Smaller ones where large observations would not fit a record, or the memory.
_SIZES = [(envs, rows) for rows in (65_536, 16_384, 4_096) for envs in (16, 4, 1)]


def starter(
    name: str,
    env: EnvDescription,
    *,
    algorithm: str | None = None,
    goal: float | None = None,
    memory_bytes: int | None = None,
    has_schema_file: bool = False,
) -> str:
    """Return the text of a YAML file that is an experiment, and says what it says.

    Args:
        name: the experiment's.
        env: of one environment, tried on this machine.
        algorithm: a built-in one; None: one that can act there.
        goal: the mean return at which its authors call it solved.
        memory_bytes: what this machine has.
        has_schema_file: SCHEMA_FILE lies beside it.

    Raises:
        SpecError: no size of it can be learnt here, or not with that algorithm.
    """
    algorithm = algorithm or usual_algorithm(env)
    values = _fitting(name, env, algorithm, goal, memory_bytes)
    head = f"{MODELINE}\n{_HOW}" if has_schema_file else _HOW + _EDITORS
    return head + "\n".join(_lines(values, Experiment, "")) + "\n"


def _fitting(
    name: str,
    env: EnvDescription,
    algorithm: str,
    goal: float | None,
    memory_bytes: int | None,
) -> dict[str, Any]:
    """Return the first values, from large to small, that fit the environment."""
    refusal = SpecError([])
    for envs, rows in _SIZES:
        values = _values(name, env, algorithm, goal, envs, rows)
        try:
            check_fit(from_values(_only_set(values)).spec, env, memory_bytes)
            return values
        except SpecError as exc:
            refusal = exc
    raise refusal


def _values(
    name: str,
    env: EnvDescription,
    algorithm: str,
    goal: float | None,
    envs: int,
    rows: int,
) -> dict[str, Any]:
    """Return what the file says; a key that begins with "# " is only suggested."""
    return {
        "apiVersion": "rollstream/v1",
        "kind": "Experiment",
        "metadata": {"name": name},
        "spec": {
            "seed": 1,
            "env": {"id": env.env_id, "# kwargs": {}, "# frameStack": 4},
            **role_values(algorithm, envs, rows),
            "topics": {"partitions": 8, "diskBudget": "20GB"},
            "stop": {
                "envSteps": 1_000_000,
                **({"# meanReturn": 100} if goal is None else {"meanReturn": goal}),
                "# wallS": 3_600,
            },
            "state": "running",
        },
    }


def _only_set(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _only_set(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if not key.startswith("# ")
    }


def _lines(values: dict[str, Any], model: Any, indent: str) -> Iterator[str]:
    """Write a mapping, over each key what the model says of it."""
    fields = {field.alias: field for field in model.model_fields.values()}
    for key, value in values.items():
        field = fields[key.removeprefix("# ")]
        about = f"{indent}# "
        part = field.annotation
        is_part = isinstance(part, type) and issubclass(part, BaseModel)
        if is_part and indent == "  ":
            yield ""
        if indent:
            yield from textwrap.wrap(
                field.description or "", _WIDTH, initial_indent=about,
                subsequent_indent=about,
            )  # fmt: skip
        if is_part:
            yield f"{indent}{key}:"
            yield from _lines(value, part, indent + "  ")
        else:
            yield f"{indent}{key}: {_text(value)}"


def _text(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and load_yaml(value) == value:
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_text(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)
