"""``--sweep PATH=v1,v2 --seeds 3`` -> one experiment for each combination; pure."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rollstream.overrides import copy_values, set_at, split_assignment
from schemas.experiment import Experiment, SpecError, from_values
from schemas.plain_values import show
from schemas.spec_text import load_yaml

MAX_EXPERIMENTS = 1_000
_MAX_NAME = 63
_HASH_DIGITS = 8
# These say nothing of what they are; what they are of does: env.id, metadata.name.
_VAGUE = ("id", "name", "kind")


@dataclass(frozen=True, slots=True)
class Axis:
    """A path of the spec, and the values it takes in turn."""

    path: str
    values: Sequence[Any]


def expand(
    values: dict[str, Any], sweeps: Sequence[str], seeds: int | None = None
) -> list[Experiment]:
    """Return an experiment for each combination, named for what differs.

    Args:
        values: of the file, ``--set`` applied.
        sweeps: each ``PATH=v1,v2``, values read as YAML; several make a grid.
        seeds: so many runs of each, from the file's seed on; None: one, as it is.

    Raises:
        SpecError: a sweep is none, one of the experiments is refused, or two of them
            would be the same.
    """
    base = from_values(values)
    axes = [parse_sweep(sweep) for sweep in sweeps]
    if seeds is not None:
        first = base.spec.seed
        count = min(max(seeds, 0), MAX_EXPERIMENTS + 1)
        axes.append(Axis("spec.seed", range(first, first + count)))
    _check_axes(axes)
    combinations = list(itertools.product(*(axis.values for axis in axes)))
    names = _names(base.name, axes, combinations, with_seeds=seeds is not None)
    experiments = [
        _experiment(values, axes, chosen, name)
        for chosen, name in zip(combinations, names, strict=True)
    ]
    _check_different(experiments)
    return experiments


def parse_sweep(text: str) -> Axis:
    """Return path and values of ``PATH=v1,v2``.

    Raises:
        SpecError: it is not of this form, or not a path of the spec.
    """
    path, listed = split_assignment("--sweep", text)
    if not path.startswith("spec."):
        raise SpecError([f"--sweep: expected a path within spec, found {show(path)}"])
    try:
        values = load_yaml(f"[{listed}]")
    except SpecError as exc:
        raise SpecError([f"--sweep {path}: {exc}"]) from exc
    if not isinstance(values, list) or not values:
        raise SpecError([f"--sweep {path}: expected values, found {show(listed)}"])
    return Axis(path, tuple(values))


def _check_axes(axes: Sequence[Axis]) -> None:
    for one, other in itertools.permutations(axes, 2):
        if f"{other.path}.".startswith(f"{one.path}."):
            raise SpecError(
                [f"--sweep {other.path}: expected it once, found {one.path} as well"]
            )
    count = math.prod(len(axis.values) for axis in axes)
    if not 0 < count <= MAX_EXPERIMENTS:
        raise SpecError(
            [f"--sweep: expected 1 to {MAX_EXPERIMENTS:,} experiments, found {count:,}"]
        )


def _experiment(
    values: dict[str, Any], axes: Sequence[Axis], chosen: Sequence[Any], name: str
) -> Experiment:
    changed = copy_values(values)
    for axis, value in zip(axes, chosen, strict=True):
        set_at(changed, axis.path, value, "--sweep")
    changed["metadata"]["name"] = name
    try:
        return from_values(changed)
    except SpecError as exc:
        raise SpecError([f"{name}: {problem}" for problem in exc.problems]) from exc


def _check_different(experiments: Sequence[Experiment]) -> None:
    specs: set[str] = set()
    names: set[str] = set()
    for experiment in experiments:
        spec = experiment.spec.model_dump_json()
        if spec in specs or experiment.name in names:
            found = f"found {experiment.name} twice"
            raise SpecError([f"--sweep: expected experiments that differ, {found}"])
        specs.add(spec)
        names.add(experiment.name)


def _names(
    base: str, axes: Sequence[Axis], combinations: Sequence[Sequence[Any]], *,
    with_seeds: bool,
) -> list[str]:  # fmt: skip
    keys = [*_short_keys([axis.path for axis in axes])]
    if with_seeds:
        keys[-1] = "s"
    names = [
        "-".join([base, *(key + _slug(v) for key, v in zip(keys, chosen, strict=True))])
        for chosen in combinations
    ]
    taken = Counter(names)
    return [
        name
        if taken[name] == 1 and len(name) <= _MAX_NAME and not name.endswith("-")
        else _with_hash(name, axes, chosen)
        for name, chosen in zip(names, combinations, strict=True)
    ]


def _short_keys(paths: Sequence[str]) -> list[str]:
    """Return the shortest ends of paths that tell them apart."""
    found = []
    for path in paths:
        parts = path.split(".")
        length = 2 if parts[-1] in _VAGUE else 1
        ends = [other.split(".") for other in paths]
        while [end[-length:] for end in ends].count(parts[-length:]) > 1:
            length += 1
        kept = [part for part in parts[-length:] if part not in _VAGUE]
        found.append(_slug("-".join(kept)))
    return found


def _with_hash(name: str, axes: Sequence[Axis], chosen: Sequence[Any]) -> str:
    what = json.dumps([name, [axis.path for axis in axes], list(chosen)])
    digest = hashlib.sha256(what.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{name[: _MAX_NAME - _HASH_DIGITS - 1].rstrip('-')}-{digest}"


def _slug(value: Any) -> str:
    """Return a value as part of a name: 3e-4, 0p99, 128x128, cartpole-v1."""
    if isinstance(value, list):
        return "x".join(map(_slug, value)) or "none"
    if isinstance(value, dict):
        text = json.dumps(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        text = _number(value)
    else:
        text = str(value)
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-") or "none"


def _number(value: float) -> str:
    text = repr(value)
    if "e" in text or 0 < abs(value) < 0.01:
        text = f"{Decimal(text).normalize():e}".replace("e+", "e")
    text = text.removesuffix(".0").replace(".", "p")
    return f"m{text[1:]}" if text.startswith("-") else text
