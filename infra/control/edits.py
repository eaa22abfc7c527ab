"""A spec -> the same, paused, scaled, or otherwise changed; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from schemas.experiment import Experiment, SpecError, from_values

State = Literal["running", "paused", "stopped"]
Count = int | tuple[int, int]
SCALABLE = ("workers", "processor")


def with_values(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """Return an experiment with other values at some paths (``spec.workers.replicas``).

    Raises:
        SpecError: such an experiment is refused.
    """
    values = experiment.model_dump(mode="json", by_alias=True)
    for path, value in changes.items():
        *parents, last = path.split(".")
        part = values
        for parent in parents:
            part = part[parent]
        part[last] = value
    return from_values(values)


def in_state(experiment: Experiment, state: State) -> Experiment:
    """Return an experiment of which another state is wanted."""
    return with_values(experiment, {"spec.state": state})


def scaled(experiment: Experiment, counts: Mapping[str, Count]) -> Experiment:
    """Return an experiment with other numbers of processes.

    Args:
        experiment: the one that is.
        counts: by ``workers`` and ``processor``: a number, or the bounds (min, max)
            within which it follows the load from then on.

    Raises:
        SpecError: there is no such role, a number is given where it follows the load,
            or such an experiment is refused.
    """
    changes: dict[str, Any] = {}
    for role, count in counts.items():
        if role not in SCALABLE:
            raise SpecError(
                [f"scale: expected {' or '.join(SCALABLE)}, found {role[:80]!r}"]
            )
        part = getattr(experiment.spec, role)
        path = f"spec.{role}"
        if isinstance(count, tuple):
            least, most = count
            start = min(max(part.replicas, least), most)
            changes |= {
                f"{path}.min": least,
                f"{path}.max": most,
                f"{path}.replicas": start,
            }
        elif part.is_elastic:
            raise SpecError(
                [
                    f"{path}: expected bounds, for its number follows the load "
                    f"({part.min}..{part.max}), found {count}; {role}={count}..{count} "
                    "holds it there"
                ]
            )
        else:
            changes[f"{path}.replicas"] = count
    return with_values(experiment, changes)
