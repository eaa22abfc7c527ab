"""A learner whose broker is killed, or does not answer."""

import contextlib
import os
import signal
import time

import pytest

from learner import train
from learner.loop import Learner
from learner.saver import Saver
from tests.integration.learner_rig import (  # noqa: F401
    Rig,
    cached_export,
    experiment,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

ROWS = 8 * 8 - 1  # of a batch; one of its 64 is not valid
LAST_SAVE_S = 10.0  # what is written to the disk may wait for a busy machine


def test_a_learner_goes_on_after_kill_9_of_the_broker(rig, local_cluster):
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(10))
    learner = rig.start_thread()
    rig.wait_for(lambda: rig.committed().get(0) == 10, learner=learner)
    local_cluster.kill_broker()
    try:
        local_cluster.restart_broker()
    finally:  # others use it as well
        local_cluster.start()
    rig.send("w0", incarnation, *range(10, 20))
    rig.wait_for(lambda: rig.committed().get(0) == 20, learner=learner)
    rig.wait_for(rig.is_all_told, learner=learner)
    values = rig.metrics()
    assert values["env_steps"] == 20 * ROWS
    assert values["lost_steps"] == values["duplicate_steps"] == 0
    assert learner.stop() == 0


def test_a_learner_ends_in_time_though_the_broker_is_frozen(
    rig, local_cluster, monkeypatch
):
    savers, make = [], Saver.__init__

    def noted(self, *arguments, **named):
        make(self, *arguments, **named)
        savers.append(self)

    monkeypatch.setattr(Saver, "__init__", noted)
    monkeypatch.setattr(train, "LAST_SAVE_S", LAST_SAVE_S)
    monkeypatch.setattr(train, "LAST_FLUSH_S", 0.5)
    rig.send("w0", rig.start_worker(), *range(10))
    learner = rig.start_thread()
    rig.wait_for(lambda: rig.committed().get(0) == 10, learner=learner)
    # A checkpoint that is under way when the broker freezes would be the last.
    monkeypatch.setattr(Learner, "_save_when_due", lambda self, now_s: None)
    told = len(rig.points())
    rig.wait_for(lambda: len(rig.points()) > told + 1, learner=learner)
    rig.wait_for(lambda: savers[-1].is_idle, learner=learner)
    before = rig.checkpoints.names()
    pid = local_cluster.pids()["kafka"]
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        # 4: its last metrics could not be delivered.
        assert learner.stop() in (0, 4)
        # The broker stays frozen: who waits for that would wait for 30 s or more.
        assert time.monotonic() - began < LAST_SAVE_S + 15.0
        # What it had learnt is safe all the same.
        assert rig.checkpoints.names()[-1] > before[-1]
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def rig(settings, cached_export):  # noqa: F811
    with contextlib.closing(Rig(settings, experiment())) as rig:
        yield rig
