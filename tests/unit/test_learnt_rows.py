"""From a batch in the log to what metrics say of the rows that were learnt from."""

from dataclasses import replace

import numpy as np
import pytest

from learner import intake as intake_module
from schemas.records import NO_POLICY, PolicyRef
from tests.unit.replay_batches import Stream
from tests.unit.test_intake import (
    ENDLESS,
    feed_of,
    make_intake,
    make_source,
    make_spec,
)

RNG = np.random.default_rng(0)


@pytest.fixture
def now_ms(monkeypatch):
    """The time of day, which a test sets."""
    now = [1_000_000]
    monkeypatch.setattr(intake_module, "now_ms", lambda: now[0])
    return now


def arrive(source, worker, first, last, **changes):
    """Let a batch come: rows of two environments."""
    stream = Stream(worker, 64, 2, ENDLESS, 1)
    source.feed.log.append(stream.batch(first, last, sequence=first // 4, **changes))


def learn(intake, count=64):
    sample = intake.replay.sample(count, 0.4, RNG)
    intake.sampled(sample)


def values_of(intake):
    return intake.gauges.take(0, 0)


def test_rows_are_as_far_behind_as_the_policy_that_acted(now_ms):
    intake = make_intake(make_spec(n=1, length=4))
    intake.clock.now = 9
    arrive(
        intake.own, "w0", 0, 4, policy=PolicyRef(2, 7), produced_at_ms=now_ms[0] - 3_000
    )
    assert intake.take_in()
    now_ms[0] += 2_000
    learn(intake)
    intake.note_learnt(at_once=True)
    values = values_of(intake)
    assert values["policy_lag_mean"] == 2  # as it came
    figures = ("policy_lag_versions_mean", "policy_lag_versions_p95")
    assert [values[name] for name in figures] == [2, 2]
    assert values["policy_lag_versions_max"] == 2
    assert values["policy_lag_s_max"] == values["data_age_s_p50"] == 5.0
    assert values["trained_rows/w0"] == 64


def test_a_version_published_since_does_not_make_rows_older_than_they_were(now_ms):
    intake = make_intake(make_spec(n=1, length=4))
    intake.clock.now = 4
    arrive(intake.own, "w0", 0, 4, policy=PolicyRef(0, 4), produced_at_ms=now_ms[0])
    intake.take_in()
    learn(intake)
    intake.note_learnt(at_once=True)  # as before every publication
    intake.clock.now = 5
    learn(intake)
    intake.note_learnt(at_once=True)
    values = values_of(intake)
    assert values["policy_lag_versions_mean"] == 0.5
    assert values["policy_lag_versions_max"] == 1


def test_before_there_is_a_policy_there_is_no_lag(now_ms):
    intake = make_intake(make_spec(n=1, length=4))
    arrive(intake.own, "w0", 0, 4, policy=NO_POLICY, produced_at_ms=now_ms[0] - 500)
    intake.take_in()
    learn(intake)
    intake.note_learnt(at_once=True)
    values = values_of(intake)
    assert values["data_age_s_p95"] == 0.5
    assert not [name for name in values if name.startswith("policy_lag")]


def test_what_is_drawn_is_noted_together_ten_times_a_second(now_ms, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(intake_module.time, "monotonic", lambda: clock[0])
    intake = make_intake(make_spec(n=1, length=4))
    arrive(intake.own, "w0", 0, 4)
    intake.take_in()
    noted = []
    monkeypatch.setattr(
        intake.gauges.freshness,
        "add",
        lambda acted, *_: noted.append((clock[0], int(acted.counts.sum()))),
    )
    for tick in range(25):
        clock[0] = 100.0 + tick / 50
        learn(intake, 4)
        intake.note_learnt()
    assert [rows for _, rows in noted] == [4, 20, 20, 20, 20]
    intake.note_learnt(at_once=True)
    assert sum(rows for _, rows in noted) == 25 * 4
    intake.note_learnt(at_once=True)
    assert len(noted) == 6


@pytest.mark.parametrize("which", ["a past", "another's"])
def test_rows_of_others_are_not_behind_our_policies(now_ms, which):
    spec = make_spec(n=1, length=4)
    past = spec.model_copy(
        update={"workers": spec.workers.model_copy(update={"replicas": 0})}
    )
    own = make_source(past if which == "a past" else spec)
    source = own if which == "a past" else make_source(spec, name="x", is_own=False)
    assert not source.run.is_live
    intake = make_intake(spec, [source])
    intake.clock.now = 9
    arrive(source, "w0", 0, 4, policy=PolicyRef(0, 1))
    intake.take_in()
    learn(intake)
    intake.note_learnt(at_once=True)
    values = values_of(intake)
    assert not [name for name in values if "lag" in name or "age" in name]
    assert source.buffer.origins.take() is None  # nothing piles up


def test_of_a_mixture_its_own_rows_are_noted(now_ms):
    spec = make_spec(n=1, length=4)
    own = make_source(spec, share=0.25)
    other = make_source(spec, name="other", share=0.75, is_own=False)
    intake = make_intake(spec, [own, other])
    intake.clock.now = 3
    arrive(own, "w0", 0, 4, policy=PolicyRef(0, 1), produced_at_ms=now_ms[0])
    arrive(other, "w5", 0, 4, policy=PolicyRef(0, 99), produced_at_ms=0)
    while intake.take_in():
        pass
    learn(intake, 64)
    intake.note_learnt(at_once=True)
    values = values_of(intake)
    assert values["trained_rows/w0"] == 16
    assert "trained_rows/w5" not in values
    assert values["policy_lag_versions_max"] == 2
    assert values["data_age_s_p95"] == 0.0


def test_a_source_that_goes_on_after_a_restart_tells_what_it_held(now_ms):
    spec = make_spec(n=1, length=4)
    before, after = make_source(spec), make_source(spec)
    stream = Stream("w0", 64, 2, ENDLESS, 1)
    batch = replace(
        stream.batch(0, 8), policy=PolicyRef(1, 2), produced_at_ms=now_ms[0] - 60_000
    )
    before.buffer.insert(batch, 0, 17)
    after.buffer.restore(before.buffer.references(), [(0, 17, batch)])
    intake = make_intake(spec, [after])
    intake.clock.now = 12
    learn(intake)
    intake.note_learnt(at_once=True)
    values = values_of(intake)
    assert values["policy_lag_versions_max"] == 10
    assert values["data_age_s_p50"] == 60.0
    assert feed_of(intake).next_offset == 0
