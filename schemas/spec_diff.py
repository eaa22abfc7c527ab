"""Two specs -> what differs, what that restarts, and what a run refuses; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.experiment import Experiment, SpecError
from schemas.resume import check_resumable
from schemas.role_parts import restarted_roles
from schemas.spec_paths import differences, values_of


@dataclass(frozen=True, slots=True)
class Change:
    """A value that differs; a part of free keys (``kwargs``) differs as a whole."""

    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.path}: {self.old!r} -> {self.new!r}"


@dataclass(frozen=True, slots=True)
class SpecDiff:
    """What it would mean to replace one spec by another.

    Attributes:
        changes: in the order of the spec; none: they are the same.
        restarts: the roles whose processes would be restarted, if it were accepted.
        refused: why a run that goes on cannot take it; a line each. None: it can.
    """

    changes: tuple[Change, ...]
    restarts: tuple[str, ...]
    refused: tuple[str, ...]


def compare(before: Experiment, now: Experiment) -> SpecDiff:
    """Return what replacing ``before`` by ``now`` would change."""
    found = differences("", values_of(before), values_of(now))
    return SpecDiff(
        changes=tuple(Change(path, old, new) for path, old, new in found),
        restarts=restarted_roles(before, now),
        refused=_refused(before, now),
    )


def _refused(before: Experiment, now: Experiment) -> tuple[str, ...]:
    try:
        check_resumable(before, now)
    except SpecError as exc:
        return tuple(exc.problems)
    return ()
