"""Rows that come once and were drawn for an update that was not made are counted."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from learner.algorithms.base import UpdateResult
from learner.loop import Learner
from learner.policy_clock import PolicyClock
from learner.report import intake_values
from tests.unit.replay_batches import Stream
from tests.unit.test_intake import ENDLESS, make_spec
from tests.unit.test_intake import make_intake as make_replay_intake
from tests.unit.test_on_policy_flow import make_intake, on_policy_spec
from tests.unit.unroll_batches import policy_stream, unroll

NOT_FINITE = UpdateResult(None, float("nan"), float("nan"), finite=False)


def make_learner(intake, spec):
    algorithm = SimpleNamespace(updates=5, rng=None, update=lambda sample: NOT_FINITE)
    context = SimpleNamespace(spec=spec)
    parts = SimpleNamespace(
        context=context, intake=intake, algorithm=algorithm, reporter=intake.reporter
    )
    return Learner(parts)


def on_policy():
    spec = on_policy_spec(length=4, lag=0, batch=16)
    intake, stream = make_intake(spec), policy_stream("w0", 40, 2, ENDLESS)
    for number in range(6):
        batch = unroll(stream, 4 * number, 4 * number + 4, sequence=number)
        intake.sources[0].feed.log.append(batch)
    return intake, spec


def test_on_policy_they_are_told_of_and_in_the_metrics():
    intake, spec = on_policy()
    learner = make_learner(intake, spec)
    for _ in range(2):
        intake.take_in()
        learner._update(16)
    counters = intake.counters
    assert (counters.samples, counters.nonfinite_losses) == (32, 2)
    assert intake_values(intake)["given_up_rows"] == counters.given_up_rows == 32
    (event,) = [e for e in intake.reporter.events if e[0] == "nonfinite-loss"]
    assert "its 16 rows do not come again" in event[2]


def test_rows_of_a_replay_buffer_come_again():
    spec = make_spec(n=1, length=4)
    intake = make_replay_intake(spec)
    stream = Stream("w0", 8, 2, ENDLESS, 1)
    batches = [replace(b, sequence=i) for i, b in enumerate(stream.batches(4))]
    intake.sources[0].feed.log += batches
    intake.take_in()
    learner = make_learner(intake, spec)
    learner._p.algorithm.rng = np.random.default_rng(0)
    learner._update(4)
    assert intake.counters.given_up_rows == 0 and intake.counters.samples == 4
    (event,) = [e for e in intake.reporter.events if e[0] == "nonfinite-loss"]
    assert "come again" not in event[2]


@pytest.mark.parametrize("is_live", [True, False])
def test_workers_that_are_gone_are_told_of_to_what_they_have_filled(is_live):
    """A past has workers of these names too; the Members are not theirs."""
    spec = on_policy_spec(length=4, batch=16)
    run_spec = spec
    if not is_live:
        workers = spec.workers.model_copy(update={"replicas": 0})
        run_spec = spec.model_copy(update={"workers": workers})
    intake, told = make_intake(spec, run_spec=run_spec), []
    intake.own.buffer.over_before = lambda *what: told.append(what)
    intake.streams_are_over({"w0": 3, "w1": 9})
    assert told == ([("w0", 3), ("w1", 9)] if is_live else [])


class FakeFlow:
    def follow_members(self):
        return {"w0": 3}

    def least_policy(self, version, published):
        return None

    def grant(self, now_s, **what):
        pass


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_loop_tells_of_members_but_where_time_must_not_tell(deterministic):
    told = []
    intake = SimpleNamespace(
        streams_are_over=told.append,
        own=None,
        gauges=None,
        room=0.0,
        lag_limit=None,
        clock=PolicyClock(True),
    )
    parts = SimpleNamespace(
        context=SimpleNamespace(
            spec=SimpleNamespace(
                learner=SimpleNamespace(
                    deterministic=deterministic, checkpoint_interval_s=1e9
                )
            )
        ),
        intake=intake,
        flow=FakeFlow(),
        sender=SimpleNamespace(poll=lambda: None),
        graph=SimpleNamespace(is_started=True, graph=lambda: None),
        publisher=SimpleNamespace(version=0, published=0, settle=lambda: None),
        saver=SimpleNamespace(failure=None, retry_at_s=None, is_idle=True),
        resumed=False,
    )
    learner = Learner(parts)
    learner._reported_at = 1e18
    learner.keep_house()
    assert told == ([] if deterministic else [{"w0": 3}])
