"""The order of batches and updates is that of the log, whatever comes when."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.replay_batches import Stream
from tests.unit.test_intake import ENDLESS, make_intake, make_spec
from tests.unit.test_on_policy_flow import make_intake as make_queue_intake
from tests.unit.test_on_policy_flow import on_policy_spec
from tests.unit.unroll_batches import policy_stream, unroll

BATCHES = 40


def replayed():
    spec = make_spec(n=3, length=4, min_size=30, deterministic=True)
    stream = Stream("w0", 4 * BATCHES, 2, ENDLESS, 3)
    log = [replace(b, sequence=i) for i, b in enumerate(stream.batches(4))]
    return make_intake(spec), spec, log


def once():
    spec = on_policy_spec(length=4, lag=1, batch=20, deterministic=True)
    stream = policy_stream("w0", 4 * BATCHES, 2, (5, 2))
    log = [
        unroll(stream, 4 * i, 4 * i + 4, version=i // 4, sequence=i)
        for i in range(BATCHES)
    ]
    return make_queue_intake(spec), spec, log


def run(world, arrivals):
    """Hand over so many batches at a time; return what was done, in its order."""
    intake, spec, log = world
    rng, size, done, updates = np.random.default_rng(3), spec.learner.batch_size, [], 0
    feed = intake.sources[0].feed

    def can_learn():
        return intake.limiter.can_sample(size) and intake.replay.samplable_rows > 0

    for count in [*arrivals, BATCHES]:
        feed.log.extend(log[:count])
        del log[:count]
        while intake.take_in(until=can_learn) or can_learn():
            while can_learn():
                sample = intake.replay.sample(size, 0.4, rng)
                done.append((intake.counters.batches, *sample.returns.flat))
                intake.replay.update_priorities(sample.indices, np.ones(size, "<f4"))
                intake.sampled(sample)
                updates += 1
                if intake.clock.is_over(updates):
                    intake.clock.updated(updates)
                    intake.drop_stale()
    assert not feed.log
    return done, intake.counters, intake.limiter


@settings(max_examples=15, deadline=None)
@pytest.mark.parametrize("world", [replayed, once])
@given(arrivals=st.lists(st.integers(0, 10), max_size=12))
def test_what_is_learnt_does_not_depend_on_when_batches_come(world, arrivals):
    at_once, bit_by_bit = run(world(), [BATCHES]), run(world(), arrivals)
    assert at_once == bit_by_bit
    assert len(at_once[0]) >= 5
