"""A recorded `rollstream bench scaling`: the model and its constants against it.

Recorded again (`points.json` of its directory), the constants are those that it prints.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from benchmarks.scaling_fit import (
    constants_of,
    cost_of,
    fit_costs,
    fit_updates,
)
from infra.planning.constants import MEASURED
from infra.planning.demand import carried_rate, demand, worker_us_per_step
from infra.planning.limits import Host
from infra.planning.workload import EnvFacts, workload_of
from schemas.experiment import from_values, load_file
from tests.unit.learner_specs import box, discrete, environment

ROOT = Path(__file__).parents[3]
RECORDED = Path(__file__).parent / "scaling_run.json"
SAMPLE = ROOT / "infra/experiments/cartpole-5000.yaml"
CARTPOLE = environment(box((4,)), action=discrete(2))


@cache
def recorded():
    return json.loads(RECORDED.read_text())


def cartpole_points():
    return [p for p in recorded()["points"] if p["is_cartpole"]]


def named(point):
    keys = ("workers", "envs", "unroll", "partitions", "rate", "flops")
    return "-".join(f"{point[key]:g}" for key in keys)


each_point = pytest.mark.parametrize("point", cartpole_points(), ids=named)


def predicted(point):
    """Return what the model says that a point needs, in microseconds a step."""
    spec = from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": "bench"},
            "spec": {
                "env": {"id": "CartPole-v1"},
                "workers": {
                    "replicas": int(point["workers"]),
                    "envsPerWorker": int(point["envs"]),
                    "unrollLength": int(point["unroll"]),
                },
                "learner": {"replay": {"capacity": 10_000_000}},
                "evaluator": {"replicas": 0},
                "topics": {"partitions": int(point["partitions"])},
            },
        }
    ).spec
    facts = EnvFacts(point["env_us_per_step"], valid_share=0.957)
    work = workload_of(spec, CARTPOLE, facts)
    work = replace(work, acting_flops=point["flops"])
    rate = point["learner_ready_steps_per_s"]
    needed = demand(work, rate, MEASURED)
    intake = needed.intake_cores - rate * MEASURED.insert_row_us / 1e6
    return work, {
        "worker": needed.worker_cores / rate * 1e6,
        "processor": needed.processor_cores / rate * 1e6,
        "kafka": needed.kafka_cores / rate * 1e6,
        "learner_side": intake / rate * 1e6,
    }


def measured(point):
    roles = ("worker", "processor", "kafka", "learner_side")
    return {role: point[f"{role}_us_per_step"] for role in roles}


@each_point
def test_a_step_costs_what_the_model_says_within_three_tenths(point):
    """All roles together."""
    _, found = predicted(point)
    assert sum(found.values()) == pytest.approx(sum(measured(point).values()), rel=0.3)


@pytest.mark.parametrize("role", ["worker", "processor", "kafka", "learner_side"])
def test_half_of_the_points_are_within_a_fifth(role):
    errors = [
        abs(predicted(point)[1][role] / measured(point)[role] - 1)
        for point in cartpole_points()
    ]
    assert median(errors) < 0.2


@each_point
def test_bytes_are_those_on_the_wire(point):
    work, _ = predicted(point)
    assert work.trajectory_bytes == pytest.approx(point["bytes_per_step"], rel=0.04)


@each_point
def test_a_worker_costs_no_less_than_its_environment(point):
    work, _ = predicted(point)
    assert worker_us_per_step(work, MEASURED) > point["env_us_per_step"]
    assert cost_of("worker", point) > 0


def test_constants_are_those_of_the_run():
    fits = fit_costs(recorded()["points"]) | fit_updates(recorded()["updates"])
    for name, found in constants_of(fits).items():
        # As printed, in three digits.
        assert getattr(MEASURED, name) == pytest.approx(found, rel=0.006), name


def test_five_thousand_environments_learn_about_as_fast_as_was_seen():
    """348,000 steps/s on two quiet cores (README), in 60 s from the launch on.

    The plan is of what goes on once everything runs, and so above it, not twice as far.
    """
    work = workload_of(load_file(SAMPLE).spec, CARTPOLE, EnvFacts(0.1))
    host = Host(2, 1.25e9)
    assert 348_000 < carried_rate(work, host.cores, MEASURED) < 2 * 348_000


def test_five_thousand_environments_take_as_much_memory_as_was_seen():
    """1.1 GB of all roles (README), brokers not counted."""
    work = workload_of(load_file(SAMPLE).spec, CARTPOLE, EnvFacts(0.1))
    needed = demand(work, 348_000, MEASURED)
    services = (MEASURED.kafka_mb + MEASURED.zookeeper_mb) * 2**20
    assert needed.memory_bytes - services == pytest.approx(1.1e9, rel=0.3)
