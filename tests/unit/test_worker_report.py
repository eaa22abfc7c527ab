"""What a worker says of its environments: counters, and crashes by their cause."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from infra.control.role import RoleContext
from infra.settings import Settings
from producers import env_troubles
from producers.acting import RandomActor
from producers.environments import make_environments
from producers.packing import MEASURED_UNROLLS, Packing
from producers.pauses import Pause
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from producers.tally import Tally
from producers.watchdog import Watchdog
from producers.worker_report import WorkerReport
from producers.worker_stream import WorkerCounts
from schemas.codec import decode
from schemas.encoding_spec import EncodingSpec
from schemas.experiment import from_values
from schemas.records import NO_POLICY, Event, MetricsPoint
from schemas.topics import EVENTS, METRICS

SEEDS = StreamSeeds(1, 0, 0)


def context_of(env):
    experiment = from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": "exp"},
            "spec": {"env": env},
        }
    )
    settings = Settings(env_modules=("tests.unit.envs",))
    return RoleContext(settings, experiment, "run1", "worker", 0, -1)


def test_log_and_events_carry_the_cause_and_the_environment(caplog):
    kwargs = {"how": "raise", "bad_seed": SEEDS.episode(1, 0)}
    context = context_of(
        {"id": "Misbehaving-v0", "vectorization": "sync", "kwargs": kwargs}
    )
    sent = []
    sender = SimpleNamespace(send=lambda topic, value, key: sent.append((topic, value)))
    report = WorkerReport(sender, context)
    report.begin(7, WorkerCounts(), 0)
    watchdog = Watchdog(20.0)
    environments = make_environments(context.spec.env, 3, context.settings, watchdog)
    try:
        rollout = Rollout(environments, SEEDS)
        arrays = rollout.collect(RandomActor(environments.action.fields, 3), 6)
    finally:
        environments.close()
        watchdog.close()
    with caplog.at_level(logging.INFO, "rollstream"):
        report.look(rollout.look())
    ((topic, value),) = sent
    assert topic == context.topic(EVENTS)
    event = decode(value, Event)
    assert (event.kind, event.severity) == ("worker-env-crashed", "warning")
    assert "environment 1: ValueError('boom')" in event.reason
    assert "environment 1: ValueError('boom')" in caplog.text
    assert np.flatnonzero(~arrays.rows.valid.all(0)).tolist() == [1]


@pytest.fixture
def told(monkeypatch):
    """A report, a clock, and what was published: events and metrics."""
    now_s = [1000.0]
    monkeypatch.setattr(env_troubles.time, "monotonic", lambda: now_s[0])
    context = context_of({"id": "CartPole-v1"})
    events, points = [], []
    sinks = {
        context.topic(EVENTS): lambda v: events.append(decode(v, Event)),
        context.topic(METRICS): lambda v: points.append(decode(v, MetricsPoint)),
    }
    sender = SimpleNamespace(send=lambda topic, value, key: sinks[topic](value))
    report = WorkerReport(sender, context)
    report.begin(7, WorkerCounts(), 0)
    return SimpleNamespace(report=report, now_s=now_s, events=events, points=points)


def test_numbers_that_are_not_finite_are_told_at_once_and_then_seldom(told):
    times = []
    for second in range(700):
        told.now_s[0] = 1000.0 + second
        before = len(told.events)
        odd = f"environment 3: the reward of step {second} is nan"
        told.report.look(Tally(10, second + 1, odd))
        told.report.publish(NO_POLICY, 0)
        times += [second] * (len(told.events) - before)
    # Held back for 10 s, 20 s, 40 s, ...
    assert times == [0, 10, 30, 70, 150, 310, 630]
    assert {(e.kind, e.severity) for e in told.events} == {("env-nonfinite", "warning")}
    assert told.events[1].reason == (
        "environment 3: the reward of step 10 is nan; 11 of 21 steps so far cannot be "
        "learnt from"
    )
    values = told.points[-1].values
    assert (values["usable_steps"], values["unusable_steps"]) == (10, 700)


def test_nothing_is_told_while_all_numbers_are_finite(told):
    told.report.look(Tally(10, 2))  # two failed, which is told by itself
    assert told.events == []


def test_crashes_without_end_are_told_seldom_and_counted(told):
    for tenth in range(101):
        told.now_s[0] = 1000.0 + tenth / 10
        told.report.look(Tally(crashes=2, crash=f"environment {tenth}: boom"))
    told.report.look(Tally())
    first, second = told.events
    assert first.reason == "environment 0: boom (and 1 more since the last)"
    # 99 times two, and one more than is named.
    assert second.reason == "environment 100: boom (and 199 more since the last)"


def test_a_full_disk_is_a_warning_with_its_mend_and_a_pause_is_not(told):
    told.report.idle(Pause("the experiment is paused"))
    told.report.idle(Pause("the experiment is paused"))
    for _ in range(3):  # it is full, is not, is full
        told.report.idle(Pause("the disk is nearly full", "make room"))
    kinds = {event.kind for event in told.events}
    assert kinds == {"worker-idle"}
    found = [(event.severity, event.reason) for event in told.events]
    paused = ("info", "the experiment is paused")
    full = ("warning", "the disk is nearly full: make room")
    assert found == [paused, paused, full]


def test_what_is_lost_of_images_is_told_once_when_it_is_known():
    context = context_of({"id": "CartPole-v1"})
    sent = []
    sender = SimpleNamespace(send=lambda topic, value, key: sent.append((topic, value)))
    report = WorkerReport(sender, context)
    packing = Packing(EncodingSpec(fields={"camera": "jpegxl"}, quality=50))
    ramp = np.linspace(0, 255, 64 * 64).reshape(1, 1, 64, 64).astype(np.uint8)
    for unroll in range(2 * MEASURED_UNROLLS):
        packing.pack({"camera": np.repeat(ramp, 3, 0), "speed": np.zeros((3, 1))})
        report.packs(packing)
        events = [value for topic, value in sent if topic == context.topic(EVENTS)]
        assert len(events) == (unroll >= MEASURED_UNROLLS - 1)
    event = decode(events[0], Event)
    assert (event.kind, event.severity) == ("lossy-encoding", "warning")
    assert "observations 'camera': jpegxl of quality" in event.reason
    assert "PSNR" in event.reason and "speed" not in event.reason
