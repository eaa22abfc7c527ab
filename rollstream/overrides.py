"""``--set spec.workers.replicas=8`` -> the spec, changed; pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from schemas.experiment import SpecError
from schemas.plain_values import check_plain, show
from schemas.spec_text import load_yaml


def apply_overrides(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of a spec's values with each ``path=value`` set.

    Values are read as YAML: numbers, booleans and lists are what they look like.

    Raises:
        SpecError: not ``path=value``, or the path leads through something else.
    """
    changed = copy_values(values)
    for override in overrides:
        path, text = split_assignment("--set", override)
        try:
            value = load_yaml(text)
        except SpecError as exc:
            raise SpecError([f"--set {path}: {exc}"]) from exc
        set_at(changed, path, value, "--set")
    return changed


def copy_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in which nothing is shared, as aliases of YAML share it.

    Raises:
        SpecError: they are not a spec's plain values.
    """
    check_plain(values)
    copied: dict[str, Any] = json.loads(json.dumps(values))
    return copied


def split_assignment(option: str, text: str) -> tuple[str, str]:
    """Return path and value of ``path=value``; raises SpecError."""
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise SpecError([f"{option}: expected path=value, found {show(text)}"])
    return path, value


def set_at(values: dict[str, Any], path: str, value: Any, option: str) -> None:
    """Set the value at a path, in place.

    Raises:
        SpecError: the path leads through something that is no mapping.
    """
    target: Any = values
    *parents, last = path.split(".")
    for parent in parents:
        target = target.setdefault(parent, {})
        if not isinstance(target, dict):
            found = f"expected a mapping at {parent}, found {show(target)}"
            raise SpecError([f"{option} {path}: {found}"])
    target[last] = value
