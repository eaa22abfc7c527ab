"""From plan to processes, step by step."""

from __future__ import annotations

import pytest

from infra.control.reconcile import Known, Launch, Steps, next_steps
from infra.control.scheduler import STOP_ORDER, Assignment

OLD, SAME, NEW = Launch(1, "aa"), Launch(2, "aa"), Launch(2, "bb")
WORKER, WORKER_1 = Assignment("worker", 0), Assignment("worker", 1)
PROCESSOR, LEARNER = Assignment("processor", 0), Assignment("learner", 0)
NOTHING = Steps((), (), ())


@pytest.mark.parametrize(
    ("wanted", "known", "steps", "because"),
    [
        ({WORKER: OLD}, {}, Steps((WORKER,), (), ()), "it does not run"),
        ({WORKER: OLD}, {WORKER: Known(OLD)}, NOTHING, "it runs"),
        ({WORKER: SAME}, {WORKER: Known(OLD)}, NOTHING, "it reads the same of both"),
        ({WORKER: NEW}, {WORKER: Known(OLD)}, Steps((), (WORKER,), ()), "it differs"),
        ({}, {WORKER: Known(OLD)}, Steps((), (WORKER,), ()), "it is not wanted"),
        ({}, {WORKER: Known(OLD, stopping=True)}, NOTHING, "it was asked"),
        ({WORKER: OLD}, {WORKER: Known(OLD, stopping=True)}, NOTHING, "it ends first"),
        ({WORKER: OLD}, {WORKER: Known(OLD, alive=False)}, NOTHING, "it backs off"),
        ({}, {WORKER: Known(OLD, alive=False)}, Steps((), (), (WORKER,)), "no more"),
        (
            {WORKER: SAME},
            {WORKER: Known(OLD, alive=False, gave_up=True)},
            Steps((), (), (WORKER,)),
            "somebody has changed something",
        ),
        (
            {WORKER: OLD},
            {WORKER: Known(OLD, alive=False, gave_up=True)},
            NOTHING,
            "it failed too often",
        ),
    ],
)
def test_steps(wanted, known, steps, because):
    assert next_steps(wanted, known) == steps, because


def test_all_are_started_slowest_first():
    wanted = {WORKER: OLD, WORKER_1: OLD, LEARNER: OLD, PROCESSOR: OLD}
    assert next_steps(wanted, {}).start == (LEARNER, PROCESSOR, WORKER, WORKER_1)


def test_experience_stops_before_who_learns_of_it():
    known = {
        assignment: Known(OLD) for assignment in (LEARNER, PROCESSOR, WORKER, WORKER_1)
    }
    asked = []
    while known:
        stop = next_steps({}, known).stop
        assert len({assignment.role for assignment in stop}) == 1
        asked += [assignment.role for assignment in stop]
        for assignment in stop:
            known[assignment] = Known(OLD, stopping=True)
        # Nobody else is asked while these end.
        assert next_steps({}, known).stop == ()
        for assignment in stop:
            del known[assignment]
    assert asked == ["worker", "worker", "processor", "learner"]
    assert [role for role in STOP_ORDER if role in asked] == list(dict.fromkeys(asked))
