"""``rollstream bench learning``: every side learns every task, taking turns."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.children import ChildFailed
from benchmarks.learning import ours, theirs
from benchmarks.learning.figures import draw, rows
from benchmarks.learning.results import Outcome, Results
from benchmarks.learning.tasks import Side, Task
from benchmarks.local import running
from benchmarks.peers import PeerUnavailable
from infra.errors import RollstreamError
from infra.settings import Settings
from schemas.experiment import from_values
from schemas.spec_text import load_yaml

Turn = tuple[Task, int, Side]


@dataclass(frozen=True)
class Plan:
    """What is to be learnt.

    Attributes:
        tasks: one after the other.
        seeds: of each; sides take turns within a seed.
        directory: where outcomes and pictures go; what is there is not run again.
    """

    tasks: Sequence[Task]
    seeds: Sequence[int]
    directory: Path

    def turns(self) -> Iterator[Turn]:
        """Yield who learns what, in order: sides one after the other in each seed."""
        for task in self.tasks:
            for seed in self.seeds[: task.most_seeds]:
                for side in task.sides:
                    yield task, seed, side


def run_bench(
    settings: Settings, plan: Plan, console: Console, *, as_json: bool
) -> None:
    """Learn what is not learnt yet, then print and draw all there is.

    Raises:
        RollstreamError: some of it failed; the rest is there.
        KeyboardInterrupt: after every process is ended; the same command goes on.
    """
    results = Results(plan.directory)
    failed = learn_missing(settings, plan, results, console)
    outcomes = [o for task in plan.tasks for o in results.of(task.name)]
    for task in plan.tasks:
        _draw(task, results)
    if as_json:
        print(json.dumps([json.loads(o.to_json()) for o in outcomes]))
    else:
        show(console, outcomes)
        console.print(f"outcomes and curves: {plan.directory}", soft_wrap=True)
    if failed:
        raise RollstreamError(
            f"bench: {len(failed)} of {len(list(plan.turns()))} failed: "
            + "; ".join(failed),
            "run the same command again: what is there is not run again",
        )


def learn_missing(
    settings: Settings, plan: Plan, results: Results, console: Console
) -> list[str]:
    """Let everyone learn what has no outcome yet; return what failed, in words."""
    every = list(plan.turns())
    missing = [
        (number, turn)
        for number, turn in enumerate(every, 1)
        if _found(results, turn) is None
    ]
    if not missing:
        return []
    failed = []
    logs = plan.directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with running(settings, console) as (_, there):
        for number, (task, seed, side) in missing:
            label = f"[{number}/{len(every)}] {task.name}, {side.name}, seed {seed}"
            try:
                _learn_one(there, (task, seed, side), logs, results, label, console)
            except (ChildFailed, PeerUnavailable) as exc:
                console.print(f"{label}: failed: {exc}", markup=False, soft_wrap=True)
                failed.append(f"{task.name} by {side.name}, seed {seed}")
    return failed


def _found(results: Results, turn: Turn) -> Outcome | None:
    task, seed, side = turn
    return results.find(task.name, side.name, seed, task.told_sha256(side))


def _learn_one(
    settings: Settings, turn: Turn, logs: Path, results: Results, label: str,
    console: Console,
) -> None:  # fmt: skip
    task, seed, side = turn
    learn = theirs.learn if side.peer else ours.learn
    began_s = time.monotonic()

    def note(line: str) -> None:
        text = f"{label}: {time.monotonic() - began_s:.0f} s: {line}"
        console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)

    note("begins")
    found = learn(settings, task, side, seed, logs, note)
    results.keep(replace(found, told_sha256=task.told_sha256(side)))
    reached = "reached its target" if found.reached else "ended"
    final = "-" if found.final_return is None else f"{found.final_return:.1f}"
    note(
        f"{reached} after {found.env_steps:,} env steps and {found.wall_s:.1f} s, "
        f"return {final}, {found.steps_per_s:,.0f} steps/s"
    )


def target_of(task: Task) -> float | None:
    """Return the mean return that an experiment asks for; None: it ends before."""
    if task.sides[0].stop:
        return None
    values = load_yaml(task.file(task.sides[0]).read_text())
    return from_values(values).spec.stop.mean_return


def _draw(task: Task, results: Results) -> None:
    outcomes = [o for o in results.of(task.name) if o.curve]
    if outcomes:
        path = results.directory / f"learning-{task.name}.png"
        draw(task.name, outcomes, target_of(task), path)


def show(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print a row for each side of each task."""
    table = Table(box=None, pad_edge=False)
    by_task = dict.fromkeys(o.task for o in outcomes)
    found = [
        row for task in by_task for row in rows([o for o in outcomes if o.task == task])
    ]
    for name in found[0] if found else ():
        table.add_column(name, justify="left" if name in ("task", "side") else "right")
    for row in found:
        table.add_row(*row.values())
    console.print(table)
