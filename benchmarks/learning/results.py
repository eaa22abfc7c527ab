"""What came of one task, one side, one seed <-> a JSON file; what is there stays."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from infra.durable import write_durably


@dataclass(frozen=True)
class Point:
    """One evaluation.

    Attributes:
        env_steps: that had been learnt from.
        wall_s: since the launch; evaluating is left out where it stops learning.
        mean_return: greedy, over ``episodes``.
    """

    env_steps: int
    wall_s: float
    mean_return: float
    episodes: int


@dataclass(frozen=True)
class Outcome:
    """How one side learnt one task with one seed.

    Attributes:
        task: its name.
        side: ``rollstream``, or the other library.
        seed: of networks and environments.
        reached: whether 100 fresh greedy episodes, and as many more, had the target;
            None: there was none.
        env_steps: at the end.
        updates: gradient steps at the end; None: not told.
        wall_s: from the launch to the end, without evaluations that stop learning.
        start_s: of those, until the first environment was stepped; None: not known.
        final_return: mean of 100 greedy episodes: ours those of the evaluation that
            passed, or of the last one; others' of an evaluation at their end.
        steps_per_s: of the second half of the time, when all is under way.
        curve: evaluations on the way.
        versions: of what it was made with.
        settings: what it was told, as it was told.
        extra: whatever else was measured, by name.
        told_sha256: of what the side was told: its experiment's file, and the side.
    """

    task: str
    side: str
    seed: int
    reached: bool | None
    env_steps: int
    updates: int | None
    wall_s: float
    start_s: float | None
    final_return: float | None
    steps_per_s: float
    curve: tuple[Point, ...]
    versions: dict[str, str]
    settings: dict[str, Any]
    extra: dict[str, float]
    told_sha256: str = ""

    def to_json(self) -> str:
        """Return one JSON object, with the machine that it was found on."""
        return json.dumps(asdict(self) | {"machine": machine()}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Return what ``to_json`` wrote; raises KeyError or TypeError."""
        values = json.loads(text)
        values.pop("machine", None)
        curve = tuple(Point(**point) for point in values.pop("curve"))
        return cls(curve=curve, **values)


class Results:
    """Outcomes in a directory, one file each: a run that was broken off goes on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, task: str, side: str, seed: int) -> Path:
        """Return where an outcome is kept."""
        return self.directory / task / f"{side}-{seed}.json"

    def find(self, task: str, side: str, seed: int, told_sha256: str) -> Outcome | None:
        """Return an outcome that is there already; none that was told otherwise."""
        path = self.path(task, side, seed)
        if not path.exists():
            return None
        found = Outcome.from_json(path.read_text())
        return found if found.told_sha256 == told_sha256 else None

    def keep(self, outcome: Outcome) -> None:
        """Write an outcome: it is there whole, or not at all."""
        path = self.path(outcome.task, outcome.side, outcome.seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        write_durably(unfinished, outcome.to_json().encode())
        os.replace(unfinished, path)

    def of(self, task: str) -> list[Outcome]:
        """Return all outcomes of a task, by side and seed."""
        paths = sorted((self.directory / task).glob("*.json"))
        return [Outcome.from_json(path.read_text()) for path in paths]
