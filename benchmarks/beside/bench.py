"""``rollstream bench beside``: all sections, whose sides take turns, by rounds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.beside.outcomes import Outcomes
from benchmarks.beside.report import as_json_object, draw, show, write_page
from benchmarks.beside.section import Place, Section, Side
from benchmarks.local import running
from infra.errors import RollstreamError
from infra.settings import Settings

Turn = tuple[Section, int, Side]


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        sections: one after the other.
        rounds: of each.
        directory: where outcomes go; what is there is not measured again.
        quick: as short as it can be.
        page: a Markdown file whose tables are to be these; None: none.
    """

    sections: Sequence[Section]
    rounds: int
    directory: Path
    quick: bool = False
    page: Path | None = None

    def turns(self) -> Iterator[Turn]:
        """Yield who is measured, in order; every other round begins at the end."""
        for section in self.sections:
            most = self.rounds if section.most_rounds is None else section.most_rounds
            for number in range(1, min(self.rounds, most) + 1):
                sides = section.sides if number % 2 else section.sides[::-1]
                for side in sides:
                    if side.in_quick or not self.quick:
                        yield section, number, side


def run_bench(
    settings: Settings, plan: Plan, console: Console, *, as_json: bool
) -> None:
    """Measure what is not measured yet, then print and draw all there is.

    Raises:
        RollstreamError: some of it failed; the rest is there.
        KeyboardInterrupt: after every process is ended; the same command goes on.
    """
    outcomes = Outcomes(plan.directory)
    failed = _measure_missing(settings, plan, outcomes, console)
    for section in plan.sections:
        draw(section, outcomes, plan.directory / f"{section.name}.png")
    found = [as_json_object(section, outcomes) for section in plan.sections]
    (plan.directory / "results.json").write_text(json.dumps(found, indent=1))
    if plan.page is not None:
        write_page(plan.page, plan.sections, outcomes)
    if as_json:
        print(json.dumps(found))
    else:
        show(console, plan.sections, outcomes)
        console.print(f"outcomes and pictures: {plan.directory}", soft_wrap=True)
    if failed:
        raise RollstreamError(
            f"bench: {len(failed)} of {len(list(plan.turns()))} turns failed: "
            + "; ".join(failed),
            "run the same command again: what is there is not measured again",
        )


def _measure_missing(
    settings: Settings, plan: Plan, outcomes: Outcomes, console: Console
) -> list[str]:
    """Measure every turn without an outcome; return what failed, in words."""
    every = list(plan.turns())
    missing = [
        (number, turn)
        for number, turn in enumerate(every, 1)
        if not outcomes.path(turn[0], turn[2], turn[1]).exists()
    ]
    failed: list[str] = []
    if not missing:
        return failed
    with running(settings, console) as (cluster, there):
        for number, (section, turn, side) in missing:
            label = f"[{number}/{len(every)}] {section.name}, {side.name}, round {turn}"
            note = _Note(console, label)
            logs = plan.directory / "logs" / section.name
            logs.mkdir(parents=True, exist_ok=True)
            place = Place(there, cluster.pids(), logs, plan.quick, note)
            try:
                note("begins")
                found = side.measure(place)
            except RollstreamError as exc:
                note(f"failed: {exc}")
                failed.append(f"{section.name} by {side.name}, round {turn}")
                continue
            outcomes.keep(section, side, turn, found)
            first = section.figures[0]
            note(f"{first.title} {found.figures.get(first.key, 0):,.{first.digits}f}")
    return failed


class _Note:
    """Says how a turn goes on."""

    def __init__(self, console: Console, label: str) -> None:
        self._console = console
        self._label = label
        self._began_s = time.monotonic()

    def __call__(self, line: str) -> None:
        text = f"{self._label}: {time.monotonic() - self._began_s:.0f} s: {line}"
        self._console.print(
            text, style="dim", markup=False, highlight=False, soft_wrap=True
        )
