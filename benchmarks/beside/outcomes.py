"""What each side came to in each round <-> JSON files; what is there stays."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.beside.section import Measured, Section, Side
from benchmarks.machine import machine
from infra.durable import write_durably


@dataclass(frozen=True)
class Spread:
    """One figure of one side over all rounds."""

    median: float
    low: float
    high: float
    rounds: int


class Outcomes:
    """A directory of rounds: a run that was broken off goes on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, section: Section, side: Side, number: int) -> Path:
        """Return where a round of a side is kept."""
        return self.directory / section.name / f"{side.slug}-{number}.json"

    def keep(self, section: Section, side: Side, number: int, found: Measured) -> None:
        """Write what was found: it is there whole, or not at all."""
        path = self.path(section, side, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        values = {
            "section": section.name,
            "side": side.name,
            "round": number,
            "figures": dict(found.figures),
            "versions": dict(found.versions),
            "machine": machine(),
        }
        write_durably(unfinished, json.dumps(values, indent=1).encode())
        os.replace(unfinished, path)

    def of(self, section: Section, side: Side) -> list[Measured]:
        """Return all rounds of a side that there are."""
        folder = self.directory / section.name
        found = []
        for path in sorted(folder.glob(f"{side.slug}-*.json")):
            if path.stem.removeprefix(f"{side.slug}-").isdigit():
                values = json.loads(path.read_text())
                found.append(Measured(values["figures"], values["versions"]))
        return found

    def medians(self, section: Section) -> dict[str, dict[str, float]]:
        """Return the median of each figure, by side's name and key."""
        return {
            side.name: {key: s.median for key, s in spreads(rounds).items()}
            for side in section.sides
            if (rounds := self.of(section, side))
        }


def spreads(rounds: Sequence[Measured]) -> dict[str, Spread]:
    """Return each figure's median and range over the rounds that have it."""
    keys = dict.fromkeys(key for found in rounds for key in found.figures)
    result = {}
    for key in keys:
        values = [found.figures[key] for found in rounds if key in found.figures]
        result[key] = Spread(median(values), min(values), max(values), len(values))
    return result
