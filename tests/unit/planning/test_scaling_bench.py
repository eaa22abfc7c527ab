"""Axes and points of `rollstream bench scaling`."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks.beside.outcomes import Outcomes
from benchmarks.beside.section import Measured
from benchmarks.pipeline import bench_experiment
from benchmarks.scaling import _BASE, chosen, figures, sections
from benchmarks.scaling_fit import fit_costs, points_of
from benchmarks.scaling_report import draw_scaling, show_costs
from tests.unit.planning.test_scaling_fit import POINTS

FOUND = {
    "learner_ready_steps_per_s": 400_000,
    "latency_ms": {"p50": 25.01, "p95": 30.0, "p99": 61.04},
    "valid_share": 0.95,
    "bytes_per_step": 45.0,
    "lost_steps": 0,
    "processes": [
        {"role": "worker/0", "cpu_us_per_step": 0.4, "peak_rss_mb": 90.0},
        {"role": "worker/1", "cpu_us_per_step": 0.5, "peak_rss_mb": 91.0},
        {"role": "processor/0", "cpu_us_per_step": 0.3, "peak_rss_mb": 99.0},
        {"role": "learner side", "cpu_us_per_step": 0.2, "peak_rss_mb": 300.0},
        {"role": "kafka", "cpu_us_per_step": 0.6, "peak_rss_mb": 700.0},
        {"role": "zookeeper", "cpu_us_per_step": 0.1, "peak_rss_mb": 90.0},
    ],
}


def test_figures_of_a_role_are_those_of_all_its_processes():
    found = figures(replace(_BASE, workers=2), FOUND)
    assert found["worker_us_per_step"] == pytest.approx(0.9)
    assert found["kafka_us_per_step"] == 0.6
    assert found["learner_side_us_per_step"] == 0.2
    assert (found["worker_mb"], found["processor_mb"]) == (91, 99)
    # 32 x 256 rows, of which 95 % are steps.
    assert found["record_kb"] == pytest.approx(8_192 * 0.95 * 45 / 1000, abs=0.05)
    assert (found["p50_ms"], found["p99_ms"]) == (25.0, 61.0)
    # 4 numbers, 64 units, 2 actions.
    assert found["flops"] == 2 * (4 * 64 + 64 * 2)


def test_each_load_is_an_experiment():
    load = replace(_BASE, partitions=64, workers=3, algorithm="sac", hidden=(32, 32))
    spec = bench_experiment(load, "credit").spec
    assert (spec.topics.partitions, spec.workers.replicas) == (64, 3)
    assert spec.learner.algorithm == "sac"
    assert spec.learner.network.hidden == (32, 32)


def test_axes_are_chosen_by_name_and_quickly_by_their_ends():
    (workers,) = chosen(["workers"])
    assert [side.name for side in workers.sides] == ["1", "2", "4", "8", "16", "32"]
    (ends,) = chosen(["workers"], quick=True)
    assert [side.name for side in ends.sides] == ["1", "32"]
    assert len(chosen([])) == len(sections())
    with pytest.raises(ValueError, match="expected axes of partitions, .*found worker"):
        chosen(["worker"])


def test_what_there_is_of_points_is_drawn_and_said(tmp_path):
    outcomes = Outcomes(tmp_path)
    (axis,) = chosen(["envs"])
    for side, point in zip(axis.sides, POINTS, strict=False):
        outcomes.keep(axis, side, 1, Measured(point, {}))
    points = points_of(sections(), outcomes)
    assert len(points) == len(axis.sides)
    picture = tmp_path / "there/scaling.png"
    draw_scaling(sections(), outcomes, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    console = Console(record=True, width=100)
    show_costs(console, fit_costs(points))
    assert "worker_vector_step_us: float = " in console.export_text()
    assert json.dumps(points)


def test_without_points_nothing_is_drawn(tmp_path):
    draw_scaling(sections(), Outcomes(tmp_path), tmp_path / "scaling.png")
    assert not list(tmp_path.iterdir())
