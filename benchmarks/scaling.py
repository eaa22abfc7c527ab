"""``rollstream bench scaling``: what a step costs as one thing at a time grows.

Around one point (1 worker x 256 CartPole environments, T=32) partitions, workers,
environments, records, rate and observations are varied, each alone. An axis is a
section of `benchmarks.beside`, a point one of its sides: outcomes stay, and the same
command goes on where it was broken off.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.beside.bench import Plan
from benchmarks.beside.bench import run_bench as measure_sections
from benchmarks.beside.outcomes import Outcomes
from benchmarks.beside.peer_side import own_process
from benchmarks.beside.report import write_tables
from benchmarks.beside.section import Figure, Measured, Place, Section, Side
from benchmarks.children import ChildFailed
from benchmarks.named import named
from benchmarks.pipeline import Load, measure
from benchmarks.scaling_fit import (
    UPDATES,
    fit_costs,
    fit_updates,
    points_of,
    updates_of,
)
from benchmarks.scaling_report import draw_scaling, show_costs
from infra.errors import RollstreamError
from infra.settings import Settings
from producers.env_cost import measure_environment
from schemas.experiment import EnvSpec

_SECONDS, _QUICK_SECONDS = 5.0, 1.5
_ENV_SECONDS, _UPDATE_SECONDS = 0.5, 2.0
_BASE = Load(
    workers=1, envs=256, unroll=32, n_step=3, seconds=_SECONDS, rate=0.0, flow="credit"
)
FIGURES = (
    Figure("learner_ready_steps_per_s", "steps/s"),
    Figure("worker_us_per_step", "workers, us/step", digits=2),
    Figure("processor_us_per_step", "processor, us/step", digits=2),
    Figure("kafka_us_per_step", "Kafka, us/step", digits=2),
    Figure("learner_side_us_per_step", "learner side, us/step", digits=2),
    Figure("bytes_per_step", "bytes/step", digits=1),
    Figure("record_kb", "kB a record", digits=0),
    Figure("p50_ms", "p50, ms"),
    Figure("p99_ms", "p99, ms"),
    Figure("worker_mb", "a worker, MB"),
)
POINTS = "points.json"
"""All of them, as `benchmarks.scaling_fit` and the tests of planning read them."""
_UPDATE_FIGURES = (
    Figure("update_us", "us/update"),
    Figure("us_per_row", "us/row", digits=2),
)
_TEXT = (
    "One processor. CPU time is that of all processes of a role, for each valid step "
    "that reached the learner; workers wait for the learner's credit."
)


def _axes() -> Iterable[tuple[str, str, list[tuple[str, Load]]]]:
    """Yield name and title of each axis, and its points."""
    yield "partitions", "Partitions", [
        (f"{n}", replace(_BASE, partitions=n)) for n in (1, 4, 8, 16, 64)
    ]  # fmt: skip
    yield "workers", "Workers of 256 environments", [
        (f"{n}", replace(_BASE, workers=n)) for n in (1, 2, 4, 8, 16, 32)
    ]  # fmt: skip
    yield "envs", "Environments of one worker", [
        (f"{n}", replace(_BASE, envs=n)) for n in (16, 64, 256, 1000, 5000)
    ]  # fmt: skip
    sizes = ((6, 16), (24, 16), (96, 16), (24, 256), (96, 256), (384, 256), (700, 256))
    yield "records", "Records of T x B steps", [
        (f"{t} x {b}", replace(_BASE, unroll=t, envs=b)) for t, b in sizes
    ]  # fmt: skip
    # What is spent though nothing goes on is what is left at a rate of 0.
    yield "rate", "Steps/s that are asked for", [
        (f"{n}", replace(_BASE, envs=64, rate=float(n)))
        for n in (5_000, 20_000, 80_000, 200_000)
    ]  # fmt: skip
    yield "networks", "Units of the two layers of the policy", [
        (f"{n}", replace(_BASE, hidden=(n, n))) for n in (64, 128, 256, 512)
    ]  # fmt: skip
    base = replace(_BASE, envs=64, algorithm="sac", n_step=1)
    yield "observations", "Observations, by environments of sizes", [
        (env_id, replace(base, env_id=env_id))
        for env_id in ("Pendulum-v1", "HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
    ]  # fmt: skip


def sections() -> tuple[Section, ...]:
    """Return all axes, updates last."""
    found = [
        Section(
            name=name,
            title=title,
            text="" if number else _TEXT,  # is said once
            figures=FIGURES,
            sides=tuple(Side(label, _measurer(load)) for label, load in points),
        )
        for number, (name, title, points) in enumerate(_axes())
    ]
    return (*found, _updates())


def _updates() -> Section:
    """Return the axis of updates: algorithm, units of two layers, rows."""
    points = [("dqn", h, b) for h in (64, 256, 512) for b in (128, 512)]
    points += [("sac", 64, 256), ("sac", 256, 256)]
    return Section(
        name=UPDATES,
        title="Updates: algorithm, units of two layers, rows",
        text="No log: samples that are there. One core.",
        figures=_UPDATE_FIGURES,
        sides=tuple(_update_side(*point) for point in points),
    )


def _update_side(algorithm: str, hidden: int, rows: int) -> Side:
    def job(place: Place) -> dict[str, Any]:
        seconds = 0.5 if place.quick else _UPDATE_SECONDS
        return {
            "algorithm": algorithm, "hidden": hidden, "batch_size": rows,
            "seconds": seconds,
        }  # fmt: skip

    name = f"{algorithm} {hidden} x {rows}"
    return own_process(name, "benchmarks.scaling_updates", job)


def chosen(names: Sequence[str], *, quick: bool = False) -> list[Section]:
    """Return the axes of some names; of none: all.

    Args:
        names: of axes.
        quick: only the two ends of each.

    Raises:
        ValueError: there is no such axis.
    """
    found = named(sections(), names, "axes")
    return [_ends(section) for section in found] if quick else found


def _ends(section: Section) -> Section:
    return replace(section, sides=(section.sides[0], section.sides[-1]))


def run_bench(
    settings: Settings, plan: Plan, console: Console, picture: Path, *, as_json: bool
) -> None:
    """Measure what is missing, print it, draw it, and say what costs come of it.

    Raises:
        RollstreamError: some of it failed; the rest is there.
    """
    try:
        # One picture is enough: no page for those of each axis.
        without = replace(plan, page=None)
        measure_sections(settings, without, console, as_json=as_json)
    finally:
        # Also of a part of the points.
        outcomes = Outcomes(plan.directory)
        every = sections()
        points, updates = points_of(every, outcomes), updates_of(every, outcomes)
        found = {"points": points, "updates": updates}
        (plan.directory / POINTS).write_text(json.dumps(found, indent=1))
        draw_scaling(every, outcomes, picture)
        if plan.page is not None:
            write_tables(plan.page, plan.sections, outcomes)
        if not as_json:
            show_costs(console, fit_costs(points) | fit_updates(updates))


def _measurer(load: Load) -> Callable[[Place], Measured]:
    def measured(place: Place) -> Measured:
        seconds = _QUICK_SECONDS if place.quick else load.seconds
        now = replace(load, seconds=seconds)
        try:
            found = measure(place.settings, now, now.flow, dict(place.services))
        except ChildFailed:
            raise
        except RollstreamError as exc:
            raise ChildFailed(str(exc)) from exc
        env = EnvSpec(id=load.env_id)
        cost = measure_environment(env, load.envs, place.settings, _ENV_SECONDS)
        figures_of = figures(load, found) | {"env_us_per_step": cost.us_per_step}
        return Measured(figures_of, {})

    return measured


def figures(load: Load, found: dict[str, Any]) -> dict[str, float]:
    """Return the figures of a point: the load itself, then what it came to."""
    uses = found["processes"]

    def cost_us(role: str) -> float:
        of_role = (u["cpu_us_per_step"] for u in uses if u["role"].startswith(role))
        return round(math.fsum(of_role), 4)

    def most_mb(role: str) -> float:
        of_role = (u["peak_rss_mb"] for u in uses if u["role"].startswith(role))
        return max(of_role, default=0.0)

    per_record = load.unroll * load.envs * found["valid_share"]
    return {
        "workers": load.workers,
        "envs": load.envs,
        "unroll": load.unroll,
        "partitions": load.partitions,
        "flops": _policy_flops(load.hidden),
        "rate": load.rate,
        "learner_ready_steps_per_s": found["learner_ready_steps_per_s"],
        "worker_us_per_step": cost_us("worker"),
        "processor_us_per_step": cost_us("processor"),
        "kafka_us_per_step": cost_us("kafka"),
        "learner_side_us_per_step": cost_us("learner"),
        "bytes_per_step": found["bytes_per_step"],
        "record_kb": round(per_record * found["bytes_per_step"] / 1000, 1),
        "p50_ms": round(found["latency_ms"]["p50"], 1),
        "p99_ms": round(found["latency_ms"]["p99"], 1),
        "worker_mb": most_mb("worker"),
        "processor_mb": most_mb("processor"),
        "lost_steps": found["lost_steps"],
    }


def _policy_flops(hidden: Sequence[int]) -> int:
    """Return what CartPole's policy computes for an observation, 4 numbers to 2."""
    sizes = (4, *hidden, 2)
    return sum(2 * a * b for a, b in zip(sizes, sizes[1:], strict=False))
