"""``--set spec.workers.replicas=8`` -> the spec, changed; pure."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import yaml

from schemas.experiment import SpecError


def apply_overrides(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of a spec's values with each ``path=value`` set.

    Values are read as YAML: numbers, booleans and lists are what they look like.

    Raises:
        SpecError: not ``path=value``, or the path leads through something else.
    """
    changed = copy.deepcopy(values)
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals or not path:
            raise SpecError([f"--set: expected path=value, found {override!r}"])
        target: Any = changed
        *parents, last = path.split(".")
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise SpecError(
                    [f"--set {path}: expected a mapping at {parent}, found {target!r}"]
                )
        try:
            target[last] = yaml.safe_load(text)
        except yaml.YAMLError as exc:
            raise SpecError([f"--set {path}: expected YAML, found {exc}"]) from exc
    return changed
