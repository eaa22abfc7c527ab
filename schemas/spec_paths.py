"""Paths into a spec, as people write them: ``spec.learner.batchSize``; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel


def values_of(part: BaseModel) -> dict[str, Any]:
    """Return the plain values of a spec or a part of one, every default spelt out."""
    return part.model_dump(mode="json", by_alias=True)


def at(values: Any, path: str) -> Any:
    """Return what is at a path; raises KeyError."""
    for part in path.split("."):
        values = values[part]
    return values


def differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Return path, old and new of each value that differs, as deep as keys agree."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            inner = f"{path}.{key}" if path else key
            yield from differences(inner, old[key], new[key])
    elif old != new:
        yield path, old, new
