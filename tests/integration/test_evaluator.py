"""An evaluator on the real broker: it judges versions and keeps the best."""

import contextlib
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

from infra.control.members import register
from infra.control.role import EXIT_ERROR, EXIT_OK, StopRequest
from infra.kafka.reading import latest_by_key
from infra.settings import Settings
from producers import evaluator as evaluator_module
from producers.best_policy import BestPolicy, Score
from producers.environments import describe_environments, make_environments
from producers.watchdog import Watchdog
from schemas.codec import decode, encode
from schemas.experiment import EnvSpec
from schemas.records import Evaluation, MetricsPoint, PolicyRef, PolicyVersion
from schemas.tensors import Tensor, pack
from schemas.topics import EVENTS, MEMBERS, METRICS, POLICIES, POLICY_HISTORY
from tests.unit.envs.graphs import graph_record, linear_q, version_record
from tests.unit.envs.trial import PATIENCE_S, Trial, until

pytestmark = pytest.mark.kafka

# Pushes towards the side to which the pole leans and moves: 500 steps, always.
BALANCES = np.array([0.1, 0.2, 1.0, 0.5], np.float32)


@pytest.fixture
def trial(settings):
    made = Trial(
        settings,
        stop={"meanReturn": 475},
        evaluator={"episodes": 20, "envs": 10},
        # However long it takes: a newer version may come.
        learner={"publishIntervalMs": 600_000},
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def description():
    return description_of(EnvSpec(id="CartPole-v1"), Settings())


def description_of(spec, settings):
    watchdog = Watchdog(60.0)
    with contextlib.closing(watchdog):
        environments = make_environments(spec, 1, settings, watchdog)
        with contextlib.closing(environments):
            return describe_environments(spec, environments, settings)


def weights(gain):
    right = gain * BALANCES
    return {"w": np.stack([-right, right], 1), "b": np.zeros(2, np.float32)}


def evaluations(t):
    return [r for r in t.records(METRICS) if isinstance(r, Evaluation)]


def evaluated(t, count, child):
    """Wait for so many in all; return them."""
    return until(lambda: len(evaluations(t)) == count and evaluations(t), by=child)


def best(t):
    message = latest_by_key(t.settings, t.context().topic(POLICIES)).get("best")
    return message and decode(message.value, PolicyVersion)


def test_a_version_that_reaches_the_goal_is_confirmed_and_kept(trial, description):
    graph = graph_record(linear_q(4, 2), description, experiment=trial.name)
    trial.send_policy(graph)
    trial.send_policy(version_record(graph, 1, weights(-1)))
    child = trial.start("evaluator")
    (first,) = until(lambda: evaluations(trial), by=child)
    assert first.policy == PolicyRef(0, 1) and first.train_step == 10
    assert not first.confirmation
    assert first.returns.array().shape == (20,) and first.returns.array().max() < 30
    assert until(lambda: best(trial), by=child).version == 1

    trial.send_policy(version_record(graph, 2, weights(1)))
    passed = evaluated(trial, 3, child)[1:]
    assert [e.confirmation for e in passed] == [False, True]
    assert [e.policy.version for e in passed] == [2, 2]
    assert all((e.returns.array() == 500).all() for e in passed)
    assert best(trial).version == 2 and best(trial).tensors

    trial.send_policy(version_record(graph, 3, weights(-1)))
    evaluated(trial, 4, child)
    assert child.stop() == EXIT_OK
    assert best(trial).version == 2, "a worse one does not replace it"
    history = trial.records(POLICY_HISTORY)
    assert [record.version for record in history] == [1, 2]
    found = [r for r in trial.records(METRICS) if isinstance(r, MetricsPoint)]
    points = [point for point in found if point.values]
    assert points[-1].values["episodes"] == 80

    # Another evaluator knows how good the best was.
    again = trial.start("evaluator")
    evaluated(trial, 5, again)
    assert again.stop() == EXIT_OK
    assert best(trial).version == 2


def test_of_every_second_version_the_newest_is_evaluated(trial, description):
    """Versions in between, and what is overtaken before it is begun, are skipped."""
    trial.spec["evaluator"] = {"everyVersions": 2, "episodes": 4, "envs": 4}
    trial.publish("running")
    graph = graph_record(linear_q(4, 2), description, experiment=trial.name)
    trial.send_policy(graph)
    for number in range(1, 6):
        trial.send_policy(version_record(graph, number, weights(-1)))
    child = trial.start("evaluator")
    evaluated(trial, 1, child)
    for number in range(6, 8):
        trial.send_policy(version_record(graph, number, weights(-1)))
    evaluated(trial, 2, child)
    assert child.stop() == EXIT_OK
    assert [e.policy.version for e in evaluations(trial)] == [4, 6]
    assert [e.train_step for e in evaluations(trial)] == [40, 60]
    assert best(trial).version in (4, 6)


def test_the_last_version_is_evaluated_whatever_its_number(
    trial, description, monkeypatch
):
    """Of every tenth the newest is gone; no newer comes: nobody waits for ever."""
    monkeypatch.setattr(evaluator_module, "PATIENCE_S", 1.0)
    trial.spec["evaluator"] = {"everyVersions": 10, "episodes": 2, "envs": 2}
    trial.spec["learner"] = {"publishIntervalMs": 100}
    trial.publish("running")
    graph = graph_record(linear_q(4, 2), description, experiment=trial.name)
    trial.send_policy(graph)
    trial.send_policy(version_record(graph, 137, weights(-1)))
    stop = StopRequest()

    def watch():
        try:
            until(lambda: evaluations(trial))
        finally:
            stop.set("the test")

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert evaluator_module.run(trial.context("evaluator"), stop) == EXIT_OK
    finally:
        watcher.join()
    assert [e.policy for e in evaluations(trial)] == [PolicyRef(0, 137)]


def test_two_rounds_play_different_episodes(trial, description):
    """With a goal that random play reaches, both rounds are short and differ."""
    trial.spec["stop"] = {"meanReturn": 1}
    trial.publish("running")
    graph = graph_record(linear_q(4, 2), description, experiment=trial.name)
    trial.send_policy(graph)
    trial.send_policy(version_record(graph, 1, weights(-1)))
    child = trial.start("evaluator")
    first, second = evaluated(trial, 2, child)
    assert first.returns.array().tolist() != second.returns.array().tolist()
    assert child.stop() == EXIT_OK


def test_records_that_cannot_be_read_do_not_keep_an_evaluator_from_its_work(
    trial, description
):
    graph = graph_record(linear_q(4, 2), description, experiment=trial.name)
    of_best = version_record(graph, 7, weights(1))
    trial.send(POLICIES, of_best, "best")
    metrics = trial.context().topic(METRICS)
    evaluated = Evaluation(
        experiment=trial.name,
        run_id=of_best.run_id,
        policy=PolicyRef(of_best.epoch, 7),
        train_step=1,
        returns=pack(np.full(3, 400.0)),
        lengths=pack(np.full(3, 400, np.int32)),
        confirmation=False,
        produced_at_ms=0,
    )
    broken = replace(evaluated, returns=Tensor("<f8", (3,), "ZSTD", b"no zstd"))
    worth = [
        b"\x00garbage",
        b"",
        encode(evaluated),
        encode(evaluated)[:-3],
        encode(replace(evaluated, run_id="another", confirmation=True)),
        encode(broken),
    ]
    for value in worth:
        trial.sender.send_and_wait(metrics, value, "evaluator/0")

    told = []
    best_policy = BestPolicy(
        trial.context("evaluator"), trial.sender, lambda *event: told.append(event)
    )
    best_policy.recall()
    assert best_policy.ref == PolicyRef(of_best.epoch, 7)
    assert best_policy.score == Score(False, 400.0)
    ((kind, reason),) = told
    assert kind == "metrics-record-refused"
    assert f"{metrics}[0] offset 0: " in reason and "(and 3 more)" in reason

    policies = trial.context().topic(POLICIES)
    trial.sender.send_and_wait(policies, b"\x00garbage", "best")
    told.clear()
    nothing = BestPolicy(
        trial.context("evaluator"), trial.sender, lambda *event: told.append(event)
    )
    nothing.recall()
    assert nothing.score is None
    assert [kind for kind, _ in told] == ["best-policy-refused"]


@pytest.fixture
def without_numbers(settings):
    kwargs = {"at": 1, "reward": "nan", "ever": True}
    made = Trial(settings, env={"id": "StepCount-v0", "kwargs": kwargs})
    yield made
    made.close()


def test_an_environment_that_gives_no_numbers_is_told_of_and_counted(without_numbers):
    """No episode of it ever ends: it is evaluated for ever, and somebody has to see."""
    t = without_numbers
    settings = Settings(env_modules=("tests.unit.envs",))
    env = description_of(EnvSpec(id="StepCount-v0"), settings)
    graph = graph_record(linear_q(1, 2, TensorProto.DOUBLE), env, experiment=t.name)
    arrays = {"w": np.ones((1, 2), np.float32), "b": np.zeros(2, np.float32)}
    t.send_policy(graph)
    t.send_policy(version_record(graph, 1, arrays))
    child = t.start("evaluator")

    def told():
        return [r for r in t.records(EVENTS) if r.kind == "env-nonfinite"]

    event = until(told, by=child)[0]
    assert event.severity == "warning" and event.role == "evaluator"
    wanted = r"environment 0: the reward of step \d+ is nan; ([\d,]+) of \1 steps"
    assert re.match(wanted, event.reason), event.reason

    def evaluating():
        found = [r for r in t.records(METRICS) if isinstance(r, MetricsPoint)]
        return [p.values for p in found if p.values.get("vector_steps", 0) > 100]

    values = until(evaluating, by=child)[-1]
    assert values["evaluating"] and values["usable_steps"] == 0


def test_a_newer_evaluator_fences_the_older(trial):
    child = trial.start("evaluator")
    key = trial.context("evaluator").member_key
    members = trial.context().topic(MEMBERS)
    until(lambda: key in latest_by_key(trial.settings, members), by=child)
    register(trial.sender, trial.context("evaluator"), StopRequest())
    assert child.wait(PATIENCE_S) == EXIT_ERROR
