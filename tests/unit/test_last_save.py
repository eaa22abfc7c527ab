"""The last checkpoint: done, or said and in the exit code."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from infra.control.role import EXIT_ERROR, EXIT_OK
from learner import saver as saver_module
from learner import train
from learner.checkpoint import CheckpointError
from learner.loop import Learner
from learner.policy_clock import PolicyClock
from learner.saver import Saver


class Reporter:
    def __init__(self):
        self.events = []

    def event(self, kind, severity, reason):
        self.events.append((kind, severity, reason))


class Store:
    def __init__(self, error=None):
        self._error = error

    def write(self, epoch, number, files):
        if self._error:
            raise self._error


def _learner(monkeypatch, store, identity_error):
    def read_identity(admin, topic):
        raise identity_error

    monkeypatch.setattr(saver_module, "read_identity", read_identity)
    monkeypatch.setattr(saver_module, "to_files", lambda snapshot: {})
    saver = Saver(store, None, "t", lambda offsets: None, None, Reporter())
    source = SimpleNamespace(feed=SimpleNamespace(dead_letters_under_way=False))
    parts = SimpleNamespace(
        context=SimpleNamespace(spec=SimpleNamespace(learner=None)),
        intake=SimpleNamespace(gauges=None, sources=[source], clock=PolicyClock(True)),
        saver=saver,
    )
    learner = Learner(parts)
    snapshot = SimpleNamespace(epoch=1, number=2, log=None)
    monkeypatch.setattr(learner, "snapshot", lambda: snapshot)
    return learner


@pytest.mark.parametrize(
    ("store_error", "identity_error", "expected"),
    [
        (CheckpointError("the disk is full"), None, "could not be written"),
        (RuntimeError("a bug"), None, "a bug"),
        # Durable; the offsets are committed by whoever goes on from it.
        (None, KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)), ""),
    ],
)
def test_a_last_save_says_whether_it_is_durable(
    monkeypatch, store_error, identity_error, expected
):
    learner = _learner(monkeypatch, Store(store_error), identity_error)
    found = learner.save_last(5.0)
    assert expected in found and bool(found) is bool(expected)


@pytest.mark.parametrize(
    ("problem", "code"), [("", EXIT_OK), ("the disk is full", EXIT_ERROR)]
)
def test_a_last_save_that_failed_is_in_the_exit_code(problem, code):
    done = []

    class FakeLearner:
        def __init__(self, parts):
            pass

        def run(self, stop):
            pass

        def save_last(self, timeout_s):
            return problem

        def report(self):
            done.append("report")

        def close(self):
            done.append("close")

    publisher = SimpleNamespace(finish=lambda timeout_s: done.append("policy"))
    parts = SimpleNamespace(resumed=False, number=0, publisher=publisher)
    assembly = SimpleNamespace(assemble=lambda *args: parts)
    imported = SimpleNamespace(
        wait=lambda stop: (assembly, SimpleNamespace(Learner=FakeLearner))
    )
    reporter, sender = Reporter(), SimpleNamespace(flush=lambda timeout_s: 0)
    stop = SimpleNamespace(reason="the test")
    found = train._learn(None, stop, 1, sender, reporter, None, None, [], imported)
    assert found == code and done == ["report", "policy", "close"]
    alerts = [reason for _, severity, reason in reporter.events if severity == "alert"]
    assert alerts == ([f"no last checkpoint: {problem}"] if problem else [])
