"""Points of a bench -> what things cost."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.scaling_fit import (
    PARTS,
    constants_of,
    cost_of,
    fit_costs,
    fit_updates,
    non_negative,
    parts_of,
)
from infra.planning.constants import Constants

COSTS = {
    "worker": (0.2, 3e-5, 90.0, 400.0, 9_000.0),
    "processor": (0.1, 0.003, 900.0, 20_000.0),
    "kafka": (0.008, 600.0, 50_000.0, 3_000.0, 1_000.0),
    "learner_side": (0.05, 0.002, 300.0, 8_000.0, 300.0),
}


def point(workers=1, envs=256, unroll=32, partitions=8, size=45.0, rate=4e5, flops=768):
    found = {
        "workers": workers,
        "envs": envs,
        "unroll": unroll,
        "partitions": partitions,
        "flops": flops,
        "bytes_per_step": size,
        "record_kb": envs * unroll * size / 1000,
        "learner_ready_steps_per_s": rate,
        "env_us_per_step": 0.2,
        "is_cartpole": float(size < 100),
    }
    for role, constants in COSTS.items():
        cost = float(np.dot(parts_of(role, found), constants))
        found[f"{role}_us_per_step"] = cost + (0.2 if role == "worker" else 0.0)
    return found


POINTS = [
    point(),
    *(point(workers=n, rate=5e5) for n in (2, 8, 32)),
    *(point(envs=n, rate=5e4 * n**0.5) for n in (16, 64, 1_000)),
    *(point(unroll=t, envs=b) for t, b in ((6, 16), (96, 16), (384, 256))),
    *(point(rate=r) for r in (5e3, 4e4)),
    *(point(partitions=n) for n in (1, 64)),
    *(point(flops=f) for f in (134_000, 530_000)),
    *(point(size=s, rate=2e4) for s in (800.0, 2_800.0)),
]


@pytest.mark.parametrize("role", list(COSTS))
def test_what_points_were_made_of_is_found(role):
    fit = fit_costs(POINTS)[role]
    found = [fit.constants[part] for part in PARTS[role]]
    assert found == pytest.approx(COSTS[role], rel=1e-6)
    assert fit.worst < 1e-6


def test_updates_are_rows_steps_of_the_optimiser_and_operations():
    points = [
        {
            "batch_size": rows,
            "training_flops": flops,
            "gradient_steps": steps,
            "update_us": 0.4 * rows + 600 * steps + 1e-5 * flops * rows,
        }
        for rows, flops, steps in ((128, 5e4, 1), (512, 7e5, 1), (256, 2e6, 3.5))
    ]
    fits = fit_updates(points)
    assert constants_of(fits) == pytest.approx(
        {"learn_row_us": 0.4, "gradient_step_us": 600, "training_mflop_us": 10}
    )
    assert fit_updates(points[:2]) == {}


def test_what_is_found_has_its_place_among_the_constants():
    found = constants_of(fit_costs(POINTS))
    assert set(found) <= {field.name for field in fields(Constants)}
    assert found["worker_step_us"] == pytest.approx(0.2)
    assert found["worker_idle_cores"] == pytest.approx(0.009)
    assert found["acting_mflop_us"] == pytest.approx(30)


def test_the_environment_is_no_cost_of_the_worker():
    one = point()
    assert cost_of("worker", one) == pytest.approx(one["worker_us_per_step"] - 0.2)
    # One that came out as more than the whole: a tenth is left.
    odd = one | {"env_us_per_step": 1e9}
    assert cost_of("worker", odd) == pytest.approx(one["worker_us_per_step"] / 10)


def test_of_few_points_nothing_is_said():
    assert fit_costs(POINTS[:1]) == {}


numbers = st.floats(0.1, 10.0)


@given(
    arrays(np.float64, (6, 3), elements=numbers),
    arrays(np.float64, 6, elements=numbers),
)
def test_no_cost_is_negative_and_none_beats_the_best(amounts, wanted):
    found = non_negative(amounts, wanted)
    assert (found >= 0).all()
    best = np.linalg.lstsq(amounts, wanted, rcond=None)[0]
    left = np.linalg.norm(amounts @ found - wanted)
    assert left >= np.linalg.norm(amounts @ best - wanted) - 1e-6
    assert left <= np.linalg.norm(wanted) + 1e-6
