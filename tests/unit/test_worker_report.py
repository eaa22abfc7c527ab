"""What a worker says of its environments: counters, and crashes by their cause."""

import logging
from types import SimpleNamespace

import numpy as np

from infra.control.role import RoleContext
from infra.settings import Settings
from producers.acting import RandomActor
from producers.environments import make_environments
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from producers.watchdog import Watchdog
from producers.worker_report import WorkerReport
from producers.worker_stream import WorkerCounts
from schemas.codec import decode
from schemas.experiment import from_values
from schemas.records import Event
from schemas.topics import EVENTS

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
        report.add(arrays)
    ((topic, value),) = sent
    assert topic == context.topic(EVENTS)
    event = decode(value, Event)
    assert (event.kind, event.severity) == ("worker-env-crashed", "warning")
    assert "environment 1: ValueError('boom')" in event.reason
    assert "environment 1: ValueError('boom')" in caplog.text
    assert np.flatnonzero(~arrays.rows.valid.all(0)).tolist() == [1]
