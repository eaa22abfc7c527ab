"""What a rate needs: sums on paper, and how they grow."""

import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.planning.demand import (
    carried_rate,
    demand,
    fastest_rate,
    grown,
    learning_us_per_step,
    worker_us_per_step,
)
from tests.unit.planning.works import COSTS, WORK, work

RATE = 10_000.0  # 10 records/s, 50 updates/s, 5 versions/s


def test_a_step_of_a_worker_is_the_sum_of_its_parts():
    # The step, its environment, 3 us of policy, 100/100 and 1,000/(10 x 100).
    assert worker_us_per_step(WORK, COSTS) == pytest.approx(1 + 2 + 3 + 1 + 1)


def test_a_step_is_learnt_from_as_often_as_the_spec_says():
    # Half of: 1 + 10 for its operations, drawn for 1 + 1, 500/100 of the optimiser.
    assert learning_us_per_step(WORK, COSTS) == pytest.approx(0.5 * 18)


def test_what_is_learnt_from_once_is_not_drawn():
    once = work(draws=False, samples_per_step=1.0)
    assert learning_us_per_step(once, COSTS) == pytest.approx(1 + 10 + 5)


def test_cores_of_each_role_at_a_rate():
    needed = demand(WORK, RATE, COSTS)
    # 8 us a step; each worker idles at 0.01 and reads 10 credits/s of 4 workers.
    assert needed.credits_per_s == 10
    assert needed.worker_cores == pytest.approx(0.08 + 4 * (0.01 + 10 * 4 * 100e-6))
    assert needed.worker_busy == pytest.approx(needed.worker_cores / 4)
    # 0.5 + 0.01 x 50 + 1,000/1,000 us.
    assert needed.processor_cores == pytest.approx(0.02 + 0.02)
    assert needed.processors == 1
    # 0.2 + 0.3 + 0.5 + 1 us; 9 us of learning.
    assert needed.intake_cores == pytest.approx(0.03 + 4 * (0.001 + 10 * 50e-6) + 0.02)
    assert needed.learner_cores == pytest.approx(needed.intake_cores + 0.09)
    # 5 versions/s of 10,000 steps of 2 + 3 + 1 us.
    assert needed.evaluator_cores == pytest.approx(0.3)
    assert needed.watch_cores == pytest.approx((4 + 1 + 2) * 100e-6)


def test_bytes_at_a_rate():
    needed = demand(WORK, RATE, COSTS)
    assert needed.broker_bytes_in_per_s == pytest.approx(10_000 * (50 + 66))
    # Four workers read 10 credits/s of 4 x 10 bytes, and 5 versions/s of 1 MB.
    control = 4 * (10 * 40 + 5 * 1_000_000)
    assert needed.control_bytes_per_s == pytest.approx(control)
    assert needed.broker_bytes_out_per_s == pytest.approx(10_000 * 116 + control)
    # 0.01 us a byte of trajectories, a quarter of that for what is only read.
    kafka = 0.05 + 4 * 0.01 + 8 * 0.001 + 10_000 * (0.5 + 0.5) / 1e6
    assert needed.kafka_cores == pytest.approx(kafka + control * 0.0025 / 1e6)


def test_large_versions_are_fetched_by_a_host_once():
    alone, shared = (demand(work(policy_sharers=n), RATE, COSTS) for n in (1, 3))
    # Four workers on two hosts.
    saved = alone.control_bytes_per_s - shared.control_bytes_per_s
    assert saved == pytest.approx(2 * 5 * 1_000_000)


def test_trajectories_stay_as_long_as_the_budget_lets_them():
    # Half of 16 MB in 8 partitions, of which 4 workers fill 4.
    assert demand(WORK, RATE, COSTS).retention_s == pytest.approx(4e6 / 500_000)
    assert demand(WORK, 0.0, COSTS).retention_s == math.inf


def test_memory_is_that_of_all_processes():
    # Of each worker processors hold records too.
    worker = 30 * 2**20 + (4 + 10) * 1_000 * 50
    fixed = (400 + 100 + 60 + 700 + 100) * 2**20
    expected = 4 * worker + fixed + 10_000_000
    assert demand(WORK, RATE, COSTS).memory_bytes == pytest.approx(expected)


def test_free_workers_read_no_credit():
    needed = demand(work(is_credited=False), RATE, COSTS)
    assert needed.credits_per_s == 0
    assert needed.worker_cores == pytest.approx(0.08 + 4 * 0.01)


def test_the_fastest_workers_have_a_core_each():
    rate = fastest_rate(WORK, COSTS)
    assert demand(WORK, rate, COSTS).worker_busy == pytest.approx(1)
    assert fastest_rate(work(most_steps_per_s=10.0), COSTS) == pytest.approx(40)


def test_so_many_cores_are_used_up():
    rate = carried_rate(WORK, 0.5, COSTS)
    assert demand(WORK, rate, COSTS).cores == pytest.approx(0.5)
    # Cores enough: then it is the learner's one.
    rate = carried_rate(WORK, 100.0, COSTS)
    assert demand(WORK, rate, COSTS).learner_cores == pytest.approx(1)
    assert carried_rate(WORK, 0.01, COSTS) == pytest.approx(0)


rates = st.floats(1.0, 1e7)


@given(st.integers(1, 10_000), st.integers(1, 10_000), rates)
def test_more_environments_never_need_less(fewer, more, rate):
    fewer, more = sorted((fewer, more))
    # As large, for a worker that is not full takes no less for each of its steps.
    small, large = (grown(WORK, 100 * n) for n in (fewer, more))
    low, high = (asdict(demand(each, rate, COSTS)) for each in (small, large))
    for key in ("worker_cores", "kafka_cores", "learner_cores", "memory_bytes"):
        assert low[key] <= high[key] * (1 + 1e-9), key


@given(rates, st.floats(1.0, 100.0))
def test_what_is_spent_on_steps_is_linear_in_the_rate(rate, times):
    # Without what is bounded by the clock: credits, versions.
    steady = work(is_credited=False, evaluators=0, policy_bytes=0)
    idle = demand(steady, 0.0, COSTS)
    once, often = (demand(steady, r, COSTS) for r in (rate, rate * times))
    for key in ("worker_cores", "kafka_cores", "learner_cores"):
        spent = [getattr(d, key) - getattr(idle, key) for d in (once, often)]
        assert spent[1] == pytest.approx(times * spent[0]), key
    assert often.broker_bytes_in_per_s == pytest.approx(
        times * once.broker_bytes_in_per_s
    )


@given(rates, st.floats(1.0, 100.0))
def test_a_higher_rate_never_needs_less(rate, times):
    low, high = (demand(WORK, r, COSTS) for r in (rate, rate * times))
    assert low.cores <= high.cores * (1 + 1e-9)
    assert low.processors <= high.processors
    assert low.retention_s >= high.retention_s * (1 - 1e-9)
