"""May a run go on with a changed spec? Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.experiment import Experiment, SpecError

# What experience and returns were made with: mixed, they would say nothing.
FIXED_FOR_LIFE = (
    "spec.env",
    "spec.processor.nStep",
    "spec.processor.gamma",
    "spec.processor.rewardScale",
    "spec.topics.partitions",
    "spec.learner.algorithm",
    "spec.learner.network",
)


def check_resumable(past: Experiment, wanted: Experiment) -> None:
    """Raise SpecError when a run of ``past`` cannot go on as ``wanted``."""
    old, new = _values(past), _values(wanted)
    problems = [
        f"{path}: expected {before!r} as in the run so far, found {now!r}; --fresh "
        "starts a new run"
        for fixed in FIXED_FOR_LIFE
        for path, before, now in _differences(fixed, _at(old, fixed), _at(new, fixed))
    ]
    if problems:
        raise SpecError(problems)


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from _differences(f"{path}.{key}", old[key], new[key])
    elif old != new:
        yield path, old, new


def _values(experiment: Experiment) -> dict[str, Any]:
    return experiment.model_dump(mode="json", by_alias=True)


def _at(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values[part]
    return values
