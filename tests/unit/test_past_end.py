"""When an experiment that learns from the past alone is over."""

from __future__ import annotations

import pytest

from infra.monitoring.past_end import SETTLED_MS, PastEnd
from infra.monitoring.progress import Progress
from schemas.records import Position
from tests.unit.pasts import small
from tests.unit.test_progress import evaluation, point, progress

PAST = {"past": {"experiment": "old"}, "stop": {"meanReturn": 475}}
TOPIC = "rollstream.new.trajectories"


def told(
    at_ms: int = 0,
    *,
    done: float = 1,
    committed: int = 10,
    can_learn: float = 0,
    version: int = 4,
    evaluated: int = 4,
    mean: float = 100,
    confirmed: bool = False,
    updates: int = 50,
) -> Progress:
    """What roles tell of a past that is learnt, but for what is given."""
    there = Position(TOPIC, 0, 10, 10, 0), Position(TOPIC, 3, 7, 7, 0)
    read = Position(TOPIC, 0, 10, committed, 0), Position(TOPIC, 3, 8, 8, 0)
    records = [
        point("replayer", positions=there, done=done),
        point("processor", positions=read),
        point(
            "learner", at_ms=at_ms, can_learn=can_learn, policy_epoch=0,
            policy_version=version, updates=updates, env_steps=900,
        ),
        evaluation(mean, evaluated),
    ]  # fmt: skip
    if confirmed:
        records.append(evaluation(mean, evaluated, confirmation=True))
    return progress(*records)


def judge(spec=PAST, lag: int | None = 0, end: PastEnd | None = None, **changes):
    """Judge at two moments, between which a learner had nothing to do."""
    end = end or PastEnd(small("new", **spec).spec)
    lags = {"processor": 1, "learner": lag}  # 1: the mark of a transaction
    assert end.judge(told(**changes), lags) is None, "not at the first glance"
    return end.judge(told(SETTLED_MS, **changes), lags)


def test_it_is_over_when_all_is_learnt_and_the_newest_policy_is_evaluated():
    finish = judge()
    assert finish is not None and not finish.reached
    assert finish.reason == "the past is learnt: 900 env steps, 50 updates"
    without_target = judge({"past": {"experiment": "old"}})
    assert without_target is not None and without_target.reached


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"done": 0}, "not all is replayed"),
        ({"committed": 9}, "a processor may still make a batch"),
        ({"lag": 3}, "the learner has not read all"),
        ({"lag": None}, "nobody knows whether it has"),
        ({"can_learn": 1}, "it may learn more"),
        ({"version": -1, "evaluated": -1}, "it has published nothing"),
        ({"version": 5}, "its newest policy is not evaluated"),
        ({"mean": 480}, "which may be the one: it is to be confirmed"),
    ],
)
def test_it_goes_on_while_something_is_left(changes, why):
    assert judge(**changes) is None, why


def test_what_is_confirmed_or_nobody_evaluates_is_not_waited_for():
    assert judge(mean=480, confirmed=True)
    assert judge(PAST | {"evaluator": {"replicas": 0}}, version=5)


@pytest.mark.parametrize(
    ("version", "evaluated", "is_over"),
    [
        (7, 4, True),
        (8, 4, False),
        (8, 8, True),
        (9, 7, False),
        # The 8 was refused, compacted away, or its evaluator began again after it.
        (11, 9, True),
        (11, 11, True),
        # The beginning says nothing of the past, unless it is all that there is.
        (3, 0, False),
        (3, 1, False),
        (3, 3, True),
        (0, 0, True),
    ],
)
def test_of_every_fourth_version_the_last_or_a_newer_has_to_be_evaluated(
    version, evaluated, is_over
):
    spec = PAST | {"evaluator": {"everyVersions": 4}}
    found = judge(spec, version=version, evaluated=evaluated)
    assert (found is not None) is is_over


def test_another_version_does_not_confirm_one_that_reached_the_target():
    end = PastEnd(small("new", **PAST, evaluator={"everyVersions": 4}).spec)

    def judged(*more):
        for at_ms in (0, SETTLED_MS):
            found = told(at_ms, version=10, evaluated=8, mean=480, confirmed=True)
            for record in more:
                found.add(record)
            finish = end.judge(found, {"learner": 0})
        return finish

    assert judged()
    assert judged(evaluation(480, 10)) is None, "of 10 nothing is confirmed"
    assert judged(evaluation(480, 10), evaluation(470, 10, confirmation=True))


def test_a_past_that_is_too_short_to_learn_from_is_told_apart():
    finish = judge(updates=0)
    assert finish and "too short" in finish.reason and "2,000" in finish.reason


def test_whatever_changes_is_waited_for_anew():
    end = PastEnd(small("new", **PAST).spec)
    lags = {"learner": 0}
    for at_ms, updates in ((0, 50), (SETTLED_MS, 51), (2 * SETTLED_MS - 1, 51)):
        assert end.judge(told(at_ms, updates=updates), lags) is None
    assert end.judge(told(2 * SETTLED_MS, updates=51), lags)


def test_an_experiment_with_workers_has_no_such_end():
    assert judge({"workers": {"replicas": 1}}) is None
    assert judge({"past": {}}), "somebody has replayed into it"
