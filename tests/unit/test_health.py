"""The proof of who is dead and who is stuck: a row for each case, with its reason."""

from __future__ import annotations

import pytest

from infra.control.checkups import RECOVERY_S, AnsweredClock
from infra.control.health import (
    LATE_S,
    START_S,
    History,
    Limits,
    Vital,
    judge,
    limits_of,
)
from schemas.records import MetricsPoint, Position
from tests.unit.learner_specs import spec as make_spec

LIMITS = Limits(dead_after_s=10.0, stuck_after_s=60.0)
SPEC = make_spec()


@pytest.mark.parametrize(
    ("because", "vital", "state"),
    [
        ("it has just started", Vital(1000.0), "ok"),
        ("a start may take long", Vital(1000.0 - START_S), "ok"),
        ("but not for ever", Vital(999.0 - START_S), "dead"),
        ("it starts, and beats", Vital(0.0, heard_s=999.0), "ok"),
        ("it starts, and beats no more", Vital(0.0, heard_s=999 - START_S), "dead"),
        ("it reports", Vital(0.0, 999.0, 999.0, 999.0), "ok"),
        ("it is silent for as long as it may be", Vital(0, 990, 990, 990), "ok"),
        ("it is silent", Vital(0.0, 989.0, 989.0, 989.0), "dead"),
        ("dead goes before stuck", Vital(0.0, 989.0, 900.0, 900.0, "work"), "dead"),
        ("it has nothing to do", Vital(0.0, 999.0, 999.0, 900.0), "ok"),
        ("it may still be at it", Vital(0.0, 999.0, 999.0, 940.0, "work"), "ok"),
        ("it does nothing", Vital(0.0, 999.0, 999.0, 939.0, "work"), "stuck"),
    ],
)
def test_judgements(because, vital, state):
    found = judge(vital, LIMITS, 1000.0)
    assert found.state == state, because
    assert bool(found.reason) == (state != "ok")


@pytest.mark.parametrize(
    ("because", "fruit_s", "state"),
    [
        ("something came of it lately", 900.0, "ok"),
        ("it is still early", 880.0, "ok"),
        ("nothing came of it for long", 879.0, "stuck"),
        ("nobody counts that in its role", None, "ok"),
    ],
)
def test_work_of_which_nothing_comes(because, fruit_s, state):
    vital = Vital(0.0, 999.0, 999.0, 999.0, "it may step", fruit_s)
    found = judge(vital, Limits(10.0, 60.0, barren_after_s=120.0), 1000.0)
    assert found.state == state, because


@pytest.mark.parametrize("role", ["worker", "evaluator"])
def test_steps_that_nothing_can_be_learnt_from_do_not_save_a_process(role):
    """A minute of good ones, then only others; its metrics move all the time."""
    history, limits = History(role, 0.0), limits_of(SPEC, role)
    assert limits.barren_after_s == 3 * SPEC.env.step_timeout_s + 10
    values = STILL | {"evaluating": 1.0}
    found = {}
    for second in range(1, 400):
        more = {"vector_steps": second, "usable_steps": min(second, 60)}
        history.hear(point(role, values | more), float(second))
        found[second] = judge(history.look(SPEC, 0, second), limits, second)
    first = min(second for second, each in found.items() if each.state == "stuck")
    assert first == 61 + limits.barren_after_s
    assert f"no step of {first - 60} s can be learnt from" in found[first].reason


def test_a_pause_is_no_time_without_fruit():
    history, limits = History("worker", 0.0), limits_of(SPEC, "worker")
    for second in range(1, 1000):
        paused = SPEC.model_copy(update={"state": "paused"})
        spec = paused if second < 700 else SPEC
        values = STILL | {"vector_steps": second, "usable_steps": 5.0}
        history.hear(point("worker", values), float(second))
        state = judge(history.look(spec, 0, second), limits, second).state
        assert state == "ok" or second > 699 + limits.barren_after_s


def test_a_long_silence_at_the_start_may_be_allowed():
    assert judge(Vital(0.0), Limits(500.0, 60.0), 400.0).state == "ok"
    assert judge(Vital(0.0), Limits(300.0, 60.0), 400.0).state == "dead"


def point(role, values, places=(), incarnation=1):
    positions = tuple(Position("t", p, at, at, 0) for p, at in places)
    return MetricsPoint("e", "r", role, 0, incarnation, 0, values, positions)


BUSY = {"updates": 5.0, "can_learn": 1.0, "evaluating": 1.0}
STILL = {"env_steps": 5.0, "vector_steps": 5.0, "waited_credit_s": 1.0}


@pytest.mark.parametrize(
    ("because", "role", "tell", "lag", "stuck"),
    [
        ("it steps", "worker", lambda t: STILL | {"vector_steps": t}, 0, False),
        ("it mends", "worker", lambda t: STILL | {"env_restarts": t}, 0, False),
        ("it waits", "worker", lambda t: STILL | {"waited_credit_s": t}, 0, False),
        ("it has no policy", "worker", lambda t: STILL | {"waited_policy_s": t}, 0,
         False),
        ("it could step, and does not", "worker", lambda t: STILL, 0, True),
        ("nothing waits for it", "processor", lambda t: {"batches": 5.0}, 0, False),
        ("nobody knows", "processor", lambda t: {"batches": 5.0}, None, False),
        ("records wait for it", "processor", lambda t: {"batches": 5.0}, 3, True),
        ("it gets through", "processor", lambda t: {"batches": t}, 3, False),
        ("it refuses all", "processor", lambda t: {"dead_letters": t}, 3, False),
        ("nothing waits for it", "learner", lambda t: {"updates": 5.0}, 0, False),
        ("it does not take in", "learner", lambda t: {"updates": 5.0}, 3, True),
        ("it knows it all", "learner", lambda t: {"duplicate_steps": t}, 3, False),
        ("it does not learn", "learner", lambda t: BUSY, 0, True),
        ("it learns", "learner", lambda t: {"updates": t, "can_learn": 1.0}, 0, False),
        ("there is no policy", "evaluator", lambda t: STILL, 0, False),
        ("it evaluates, and does not", "evaluator", lambda t: BUSY, 0, True),
        ("it is slow", "evaluator", lambda t: BUSY | {"vector_steps": t}, 0, False),
    ],
)  # fmt: skip
def test_who_works(because, role, tell, lag, stuck):
    """A process that tells something each second, for three minutes."""
    history, limits = History(role, 0.0), limits_of(SPEC, role)
    states = []
    for second in range(1, 181):
        history.hear(point(role, tell(float(second))), float(second))
        vital = history.look(SPEC, lag, second + 0.5)
        states.append(judge(vital, limits, second + 0.5).state)
    assert ("stuck" in states) == stuck, because
    assert "dead" not in states
    if stuck:
        first = states.index("stuck")
        assert limits.stuck_after_s <= first + 1.5 <= limits.stuck_after_s + 5


def test_positions_are_progress_as_well():
    history = History("processor", 0.0)
    for second in range(1, 181):
        told = point("processor", {"batches": 5.0}, [(0, second)])
        history.hear(told, float(second))
        vital = history.look(SPEC, 3, second + 0.5)
        assert judge(vital, limits_of(SPEC, "processor"), second + 0.5).state == "ok"


@pytest.mark.parametrize("role", ["worker", "learner", "evaluator", "processor"])
def test_a_main_loop_that_hangs_is_stuck_whatever_it_told_before(role):
    history, limits = History(role, 0.0), limits_of(SPEC, role)
    values = {"waited_credit_s": 1.0, "env_steps": 1.0}
    history.hear(point(role, values), 1.0)
    states = {}
    for second in range(2, 181):
        history.hear(point(role, {}), float(second))  # a beat
        states[second] = judge(history.look(SPEC, 0, second), limits, second)
    assert states[int(limits.stuck_after_s)].state == "ok"
    late = states[int(limits.stuck_after_s + LATE_S) + 3]
    assert late.state == "stuck" and "main loop hangs" in late.reason


def test_nobody_is_stuck_while_paused():
    paused = SPEC.model_copy(update={"state": "paused"})
    history = History("worker", 0.0)
    for second in range(1, 181):
        history.hear(point("worker", STILL), float(second))
        vital = history.look(paused, 0, second + 0.5)
        assert judge(vital, limits_of(paused, "worker"), second + 0.5).state == "ok"


def test_limits_leave_time_for_slow_steps_and_slow_rates():
    def limits(env=None, workers=None, **health):
        full = make_spec(env=env or {})
        values = full.model_dump(mode="json", by_alias=True)
        values["health"] |= health
        values["workers"] |= workers or {}
        return type(full).model_validate(values, by_alias=True, by_name=False)

    fast = limits(env={"stepTimeoutS": 5}, stuckAfterS=20)
    assert limits_of(fast, "worker").stuck_after_s == 20
    slow = limits(env={"stepTimeoutS": 90}, stuckAfterS=20)
    assert limits_of(slow, "worker").stuck_after_s == 100
    assert limits_of(slow, "evaluator").stuck_after_s == 100
    assert limits_of(slow, "learner").stuck_after_s == 20
    # An unroll of 16 * 32 rows, at 4 a second, comes each 128 s.
    rare = limits(workers={"maxEnvStepsPerS": 4}, stuckAfterS=20)
    assert limits_of(rare, "worker").stuck_after_s == 266


def test_the_clock_stands_still_while_nobody_can_be_heard():
    clock = AnsweredClock()
    for _ in range(4):
        clock.pass_(0.5, answered=True)
    assert clock.now_s == 2.0
    for _ in range(100):
        clock.pass_(0.5, answered=False)
    assert clock.now_s == 2.0, "the brokers are away"
    for _ in range(int(RECOVERY_S / 0.5)):
        clock.pass_(0.5, answered=True)
    assert clock.now_s == 2.0, "processes have to find them again"
    clock.pass_(0.5, answered=True)
    assert clock.now_s == 2.5
    clock.pass_(3_600.0, answered=True)
    assert clock.now_s <= 6.0, "we were frozen ourselves"
