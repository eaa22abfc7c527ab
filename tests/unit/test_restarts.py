import math

import pytest

from infra.control.restarts import (
    MAX_FAILURES,
    Failures,
    after_failure,
    after_no_start,
    after_refusal,
)
from infra.control.scheduler import Assignment, wanted_roles
from schemas.experiment import load_file
from tests.unit.test_experiment import SAMPLE


def test_the_first_failure_is_restarted_at_once_and_further_ones_later():
    failures, delays = Failures(), []
    for _ in range(4):
        failures = after_failure(failures, started_at_s=99.0, now_s=100.0, jitter=0.0)
        delays.append(failures.retry_at_s - 100.0)
    assert delays == [0.0, 0.5, 1.0, 2.0]


def test_jitter_spreads_a_delay_by_half():
    failures = after_failure(Failures(count=3), 99.0, 100.0, jitter=1.0)
    assert failures.retry_at_s == pytest.approx(100.0 + 2.0 * 1.5)


def test_a_process_that_fails_again_and_again_is_given_up():
    failures = Failures()
    for _ in range(MAX_FAILURES - 1):
        failures = after_failure(failures, 99.0, 100.0, 0.0)
        assert not failures.gave_up
    assert after_failure(failures, 99.0, 100.0, 0.0).gave_up


def test_the_spec_says_after_how_many_failures():
    once = after_failure(Failures(), 99.0, 100.0, 0.0, max_failures=2)
    assert not once.gave_up
    assert after_failure(once, 99.0, 100.0, 0.0, max_failures=2).gave_up
    # A process that was well for a minute has failed once again, not twice.
    assert not after_failure(once, 30.0, 100.0, 0.0, max_failures=2).gave_up


def test_a_healthy_minute_forgives():
    failures = after_failure(Failures(count=5, total=5), 0.0, 61.0, 0.0)
    assert (failures.count, failures.total) == (1, 6)


def test_a_host_that_starts_nothing_is_tried_for_ever_and_ever_later():
    failures, delays = Failures(count=2), []
    for _ in range(2_000):
        failures = after_no_start(failures, 100.0, jitter=0.0)
        delays.append(failures.retry_at_s - 100.0)
    assert delays[:9] == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert max(delays) == 30.0 and not failures.gave_up
    # The process itself has failed no oftener for that.
    assert (failures.count, failures.unstarted) == (2, 2_000)
    crashed = after_failure(failures, 99.0, 100.0, 0.0, max_failures=4)
    assert (crashed.count, crashed.unstarted, crashed.gave_up) == (3, 0, False)


def test_where_nobody_else_can_start_it_it_is_given_up():
    failures = Failures()
    for expected in (False, False, True):
        failures = after_no_start(failures, 100.0, 0.0, max_failures=3)
        assert failures.gave_up is expected


def test_what_another_start_cannot_mend_is_given_up_at_once():
    failures = after_refusal(Failures())
    assert failures.gave_up and failures.total == 1
    assert failures.retry_at_s == math.inf


def test_a_spec_wants_its_replicas():
    spec = load_file(SAMPLE).spec
    roles = wanted_roles(spec)
    assert sorted(roles) == [
        Assignment("evaluator", 0),
        Assignment("learner", 0),
        Assignment("processor", 0),
        Assignment("worker", 0),
        Assignment("worker", 1),
    ]
    assert wanted_roles(spec.model_copy(update={"state": "stopped"})) == []
