"""What an unroll costs is what it was: counted, never timed."""

from __future__ import annotations

import pytest

from tests.counters import log_counters, policy_counters
from tests.counters.expectations import differences, load, python_version
from tests.counters.hot_paths import records
from tests.counters.measured import GROUPS, TINY

PYTHON, EXPECTED = load()


def check(group, found):
    same = python_version() == PYTHON
    told = differences(found, EXPECTED.get(group, {}), same_python=same)
    assert not told, "\n".join([group, *told])


@pytest.mark.parametrize("group", GROUPS)
def test_an_unroll_costs_what_it_did(group):
    check(group, GROUPS[group]())


@pytest.mark.kafka
def test_the_log_and_the_wire_hold_what_they_did(settings, make_topic):
    check(log_counters.GROUP, log_counters.measure(settings, make_topic))


@pytest.mark.kafka
def test_a_version_of_a_policy_takes_what_it_did(settings):
    check(policy_counters.GROUP, policy_counters.measure(settings))


@pytest.mark.kafka
def test_small_records_that_are_sent_at_once_share_requests(settings, make_topic):
    values, topic = records(TINY, 64), make_topic()
    # How many there are depends on when the client looks: far fewer than records.
    told = log_counters.send(settings, topic, values, in_a_burst=True)
    assert 1 <= told.requests("Produce") <= 16
    assert log_counters.send(settings, topic, values).requests("Produce") == 64


def test_nothing_is_expected_that_is_not_measured():
    assert EXPECTED.keys() == {*GROUPS, log_counters.GROUP, policy_counters.GROUP}
