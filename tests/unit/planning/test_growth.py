"""What saturates first, and what more environments come to."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.planning.demand import demand, fastest_rate, grown
from infra.planning.growth import make_plan, row_of, saturations
from infra.planning.limits import (
    Host,
    brokers_needed,
    hosts_needed,
    limits,
    sustained,
)
from tests.unit.planning.works import COSTS, HOST, WORK, work


def by_name(found):
    return {limit.name: limit for limit in found}


def test_workers_are_as_large_and_become_more():
    assert grown(WORK, 1_000).workers == 10
    assert grown(WORK, 1_050).workers == 11
    few = grown(WORK, 30)
    assert (few.workers, few.envs_per_worker) == (1, 30)


def test_a_limit_lets_so_much_through():
    rate, held_by = sustained(WORK, 1e6, HOST, COSTS)
    assert held_by is not None and held_by.name == "learner"
    assert demand(WORK, rate, COSTS).learner_cores == pytest.approx(1)
    assert sustained(WORK, 1_000.0, HOST, COSTS) == (1_000.0, None)


def test_where_nothing_gets_through_the_rate_is_none():
    crowd = work(workers=10_001)
    rate, held_by = sustained(crowd, 1_000.0, HOST, COSTS)
    assert rate == pytest.approx(0) and held_by is not None


def test_credits_are_read_by_all_of_all():
    """So they grow as the square of the workers."""
    shares = [
        by_name(limits(work(workers=n, policy_bytes=0), 1e6, HOST, COSTS))
        for n in (10, 100)
    ]
    few, many = (s["policies and credits"].used for s in shares)
    assert many == pytest.approx(100 * few)


def test_a_partition_has_one_processor():
    # 2 us a step: 1.4 M steps/s are 2.8 cores, more than 4 processors' 0.68 each.
    found = by_name(limits(WORK, 1_400_000, HOST, COSTS))["processors"]
    assert (found.used, found.most) == (5, 4)
    assert found.utilisation > 1


def test_the_log_has_to_hold_what_a_checkpoint_refers_to():
    found = by_name(limits(work(buffer_rows=1_000_000), 1.0, HOST, COSTS))
    assert found["replay on the log"].utilisation == pytest.approx(66e6 / 4e6)


def test_what_saturates_first_comes_first():
    found = saturations(WORK, 100.0, HOST, COSTS)
    assert found[0].limit.name == "learner"
    numbers = [passed.num_envs for passed in found]
    assert numbers == sorted(numbers)


@given(st.floats(0.1, 1e4))
def test_saturation_is_where_a_limit_is_passed_and_one_worker_less_is_not(per_env):
    for passed in saturations(WORK, per_env, HOST, COSTS):
        name, number = passed.limit.name, passed.num_envs
        at, before = (
            by_name(limits(more, per_env * more.num_envs, HOST, COSTS))[name]
            for more in (grown(WORK, number), grown(WORK, max(number - 100, 1)))
            if more.workers
        )
        assert at.utilisation > 1
        assert before.utilisation <= 1 + 1e-9 or number <= 100


@given(st.integers(1, 20_000), st.floats(0.1, 1e4))
def test_a_row_keeps_within_all_limits(workers, per_env):
    row = row_of(grown(WORK, 100 * workers), per_env, HOST, COSTS)
    assert row.needed.rate <= row.offered * (1 + 1e-9)
    if row.needed.rate > 1e-3:
        assert all(limit.utilisation <= 1 + 1e-6 for limit in row.limits)
    assert (row.held_by is None) == (row.needed.rate == row.offered)


def test_brokers_and_hosts_are_no_fuller_than_planned():
    needed = demand(WORK, 2e6, COSTS)
    small = Host(cores=2, network_bytes_per_s=1e8)
    assert brokers_needed(needed, 8, small) == max(
        math.ceil(needed.kafka_cores / 1.4),
        math.ceil(needed.broker_bytes_out_per_s / 0.7e8),
    )
    assert brokers_needed(needed, 6_000, HOST) == 3  # 12,000 partitions
    assert hosts_needed(needed, HOST) == math.ceil(needed.cores / (0.7 * 16))
    crowd = demand(work(workers=2_000), 1.0, COSTS)
    assert hosts_needed(crowd, Host(1e6, 1e9)) == 4  # 512 roles an agent


def test_a_plan_has_the_spec_as_it_is_and_ten_times_as_many_and_so_on():
    plan = make_plan(WORK, HOST, COSTS)
    assert [row.num_envs for row in plan.rows] == [400, 4_000, 40_000, 100_000]
    assert plan.own.offered == pytest.approx(fastest_rate(WORK, COSTS))
    assert plan.here <= plan.own.needed.rate
    asked = make_plan(WORK, HOST, COSTS, rate=4_000.0, envs=[800, 400])
    assert [row.num_envs for row in asked.rows] == [400, 800]
    assert asked.rows[1].offered == pytest.approx(8_000)
