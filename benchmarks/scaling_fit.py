"""Points of ``rollstream bench scaling`` -> what a step, a record, a byte costs; pure.

Each role's CPU microseconds a step are the sum of a few parts, each a constant times
something known of the point, and none of them negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.beside.outcomes import Outcomes
from benchmarks.beside.section import Section
from schemas.tensors import Array

Point = Mapping[str, float]
"""Figures of `benchmarks.scaling.figures`."""

ROLES = ("worker", "processor", "kafka", "learner_side")
UPDATES = "updates"
"""The axis that has no pipeline: updates alone."""

PARTS: dict[str, dict[str, str]] = {
    "worker": {
        "step": "us a step",
        "flop": "us a floating-point operation of the policy",
        "vector_step": "us a step of all B environments",
        "record": "us a record",
        "worker_second": "us a second of each worker, whatever it does",
    },
    "processor": {
        "step": "us a step",
        "byte": "us a byte of trajectories",
        "record": "us a record",
        "second": "us a second, whatever it does",
    },
    "kafka": {
        "byte": "us a byte of trajectories",
        "record": "us a record",
        "second": "us a second, whatever it does",
        "worker_second": "us a second of each worker",
        "partition_second": "us a second of each partition",
    },
    "learner_side": {
        "step": "us a step",
        "byte": "us a byte of trajectories",
        "record": "us a record",
        "second": "us a second, whatever it does",
        "worker_second": "us a second of each worker",
    },
    UPDATES: {
        "row": "us a row of an update",
        "gradient_step": "us a step of the optimiser",
        "flop": "us a floating-point operation of learning",
    },
}
"""By role: the parts of its cost, with their units."""


_NAMES = {
    "worker": {
        "step": "worker_step_us",
        "flop": "acting_mflop_us",
        "vector_step": "worker_vector_step_us",
        "record": "worker_record_us",
        "worker_second": "worker_idle_cores",
    },
    "processor": {
        "step": "processor_step_us",
        "byte": "processor_byte_us",
        "record": "processor_record_us",
        "second": "processor_idle_cores",
    },
    "kafka": {
        "byte": "kafka_byte_us",
        "record": "kafka_record_us",
        "second": "kafka_idle_cores",
        "worker_second": "kafka_worker_cores",
        "partition_second": "kafka_partition_cores",
    },
    # What it does for each worker is too little to be seen with 32 of them.
    "learner_side": {
        "step": "intake_step_us",
        "byte": "intake_byte_us",
        "record": "intake_record_us",
        "second": "intake_idle_cores",
    },
    UPDATES: {
        "row": "learn_row_us",
        "gradient_step": "gradient_step_us",
        "flop": "training_mflop_us",
    },
}


@dataclass(frozen=True)
class Fit:
    """The parts of a role's cost.

    Attributes:
        constants: by part.
        worst: the largest relative error over the points, of the cost.
        typical: the median of it.
    """

    constants: Mapping[str, float]
    worst: float
    typical: float


def points_of(sections: Iterable[Section], outcomes: Outcomes) -> list[Point]:
    """Return the median figures of every point of the pipeline that there is."""
    return [
        {**figures, "is_cartpole": float(section.name != "observations")}
        for section in sections
        if section.name != UPDATES
        for figures in outcomes.medians(section).values()
    ]


def updates_of(sections: Iterable[Section], outcomes: Outcomes) -> list[Point]:
    """Return the median figures of every point of updates that there is."""
    return [
        figures
        for section in sections
        if section.name == UPDATES
        for figures in outcomes.medians(section).values()
    ]


def fit_updates(points: Sequence[Point]) -> dict[str, Fit]:
    """Return the fit of updates; empty where there are too few."""
    if len(points) < len(PARTS[UPDATES]):
        return {}
    rows = np.array([p["batch_size"] for p in points])
    flops = rows * np.array([p["training_flops"] for p in points])
    steps = np.array([p["gradient_steps"] for p in points])
    costs = np.array([p["update_us"] for p in points])
    return {UPDATES: _solved(UPDATES, np.stack([rows, steps, flops], 1), costs)}


def fit_costs(points: Sequence[Point]) -> dict[str, Fit]:
    """Return the fit of each role, over all points that it can be asked of.

    A worker's is what is left without its environment, of CartPole alone: beside an
    environment of 100 us nothing else can be seen.
    """
    cartpole = [p for p in points if p["is_cartpole"]]
    return {
        role: _fit(role, cartpole if role == "worker" else points)
        for role in ROLES
        if len(cartpole) >= 2
    }


def constants_of(fits: Mapping[str, Fit]) -> dict[str, float]:
    """Return what was found by its name in `infra.planning.constants.Constants`."""
    found = {}
    for role, fit in fits.items():
        for part, name in _NAMES[role].items():
            times = 1e-6 if name.endswith("_cores") else 1.0
            times = 1e6 if name.endswith("_mflop_us") else times
            found[name] = fit.constants[part] * times
    return found


def parts_of(role: str, point: Point) -> list[float]:
    """Return how much of each part there is in a step of a point."""
    steps_per_s = point["learner_ready_steps_per_s"]
    seconds = 1 / steps_per_s
    amounts = {
        "step": 1.0,
        "byte": point["bytes_per_step"],
        "flop": point["flops"],
        "vector_step": 1 / point["envs"],
        "record": point["bytes_per_step"] / (1000 * point["record_kb"]),
        "second": seconds,
        "worker_second": point["workers"] * seconds,
        "partition_second": point["partitions"] * seconds,
    }
    return [amounts[part] for part in PARTS[role]]


def cost_of(role: str, point: Point) -> float:
    """Return a role's CPU microseconds a step; a worker's without its environment."""
    cost = point[f"{role}_us_per_step"]
    if role == "worker":
        # Environments are measured apart: by chance that may have come out as more.
        cost = max(cost - point["env_us_per_step"], cost / 10)
    return cost


def _fit(role: str, points: Sequence[Point]) -> Fit:
    costs = np.array([cost_of(role, p) for p in points])
    amounts = np.array([parts_of(role, p) for p in points])
    return _solved(role, amounts, costs)


def _solved(role: str, amounts: Array, costs: Array) -> Fit:
    # Relative errors count: a dear point must not decide alone.
    constants = non_negative(amounts / costs[:, None], np.ones(len(costs)))
    errors = np.abs(amounts @ constants / costs - 1)
    named = dict(zip(PARTS[role], constants.tolist(), strict=True))
    return Fit(named, float(errors.max()), float(np.median(errors)))


def non_negative(amounts: Array, wanted: Array) -> Array:
    """Return the constants [K] >= 0 that bring ``amounts @ constants`` close.

    Least squares; what would be below zero is left out, the lowest first.

    Args:
        amounts: [N, K].
        wanted: [N].
    """
    kept = list(range(amounts.shape[1]))
    constants = np.zeros(amounts.shape[1])
    while kept:
        found = np.linalg.lstsq(amounts[:, kept], wanted, rcond=None)[0]
        if found.min() >= 0:
            constants[kept] = found
            break
        kept.pop(int(np.argmin(found * np.abs(amounts[:, kept]).mean(0))))
    return constants
