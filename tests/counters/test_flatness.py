"""More environments are more work for numpy, and none more for Python.

Numbers in a record take a byte more as they grow, which Python writes: the sizes are
such that all take as many.
"""

from __future__ import annotations

import pytest

from tests.counters.counting import bytecodes, calls, kept_bytes
from tests.counters.hot_paths import (
    WARM_UP,
    Learner,
    Processor,
    Shape,
    batches,
    records,
    working,
)
from tests.counters.measured import (
    work_of_learner,
    work_of_processor,
    work_of_worker,
)

FEW, MANY = Shape(256, 32), Shape(1000, 32)
SHORT, LONG, LONGER = Shape(256, 64), Shape(256, 112), Shape(256, 160)
PYTHON_S = ("bytecodes per unroll", "calls per unroll")
KEPT_BYTES = 32 * 1024
ROLES = {
    "worker": work_of_worker,
    "processor": work_of_processor,
    "learner": work_of_learner,
}


def of_python(work):
    return {name: work[name] for name in PYTHON_S}


@pytest.mark.parametrize("role", ROLES)
def test_python_does_nothing_for_a_single_environment(role):
    few, many = ROLES[role](FEW), ROLES[role](MANY)
    assert of_python(few) == of_python(many)


@pytest.mark.parametrize("role", ["processor", "learner"])
def test_behind_the_worker_python_does_nothing_for_a_single_step(role):
    assert of_python(ROLES[role](SHORT)) == of_python(ROLES[role](LONG))


def test_each_step_costs_a_worker_as_much_as_any_other():
    short, long, longer = (work_of_worker(each) for each in (SHORT, LONG, LONGER))
    for name in PYTHON_S:
        assert long[name] - short[name] == longer[name] - long[name]


def test_a_learners_python_does_nothing_for_a_single_row_of_a_sample():
    learner = Learner(FEW)
    for batch in batches(FEW, WARM_UP):
        learner.take(batch)
    counted = []
    for rows in (64, 512, 4096):

        def learn(rows=rows):
            sample = learner.buffer.sample(rows, 0.4, learner.rng)
            learner.buffer.update_priorities(sample.indices, sample.returns)

        learn()
        counted.append((bytecodes(learn), calls(learn)))
    assert counted[0] == counted[1] == counted[2]


def test_nothing_is_kept_of_an_unroll_that_is_over():
    with working(FEW) as worker:
        assert kept_bytes(worker.unroll, 40) < KEPT_BYTES
    values, processor = records(FEW, 40), Processor()
    unrolls = iter(values)
    for _ in range(8):
        processor.take(next(unrolls))
    assert kept_bytes(lambda: processor.take(next(unrolls)), 30) < KEPT_BYTES
    learner, found = Learner(FEW), iter(batches(FEW, WARM_UP + 41))
    for _ in range(WARM_UP):
        learner.take(next(found))
    assert kept_bytes(lambda: learner.take(next(found)), 40) < KEPT_BYTES
