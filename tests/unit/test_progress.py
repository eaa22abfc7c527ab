import json

import numpy as np
import pytest

from infra.control.statuses import summary_of
from infra.monitoring.progress import EVALUATIONS, INCARNATIONS, Progress, judge
from infra.monitoring.summary import Summary, summarise
from schemas.experiment import StopSpec
from schemas.records import (
    EpisodesFinished,
    Evaluation,
    MetricsPoint,
    PolicyRef,
    Position,
    RoleStatus,
)
from schemas.tensors import pack

RUN = "run"


def point(role, index=0, incarnation=0, at_ms=0, positions=(), run_id=RUN, **values):
    return MetricsPoint(
        "e", run_id, role, index, incarnation, at_ms, values, tuple(positions)
    )


def evaluation(mean, version=1, confirmation=False, run_id=RUN):
    return Evaluation(
        "e", run_id, PolicyRef(0, version), 10, pack(np.full(4, mean)),
        pack(np.ones(4, np.int32)), confirmation, 0,
    )  # fmt: skip


def episodes(returns):
    count = len(returns)
    zeros = pack(np.zeros(count, np.int64))
    return EpisodesFinished(
        "e", RUN, "w0", 0, 0, pack(np.zeros(count, np.int32)), zeros,
        pack(np.asarray(returns, float)), pack(np.ones(count, np.int32)),
        pack(np.zeros(count, np.int8)), zeros,
    )  # fmt: skip


def progress(*records):
    found = Progress(RUN)
    for record in records:
        found.add(record)
    return found


def test_counters_of_incarnations_add_up():
    found = progress(
        point("worker", 0, 5, env_steps=10),
        point("worker", 0, 5, env_steps=30),
        point("worker", 0, 9, env_steps=7),
        point("worker", 1, 6, env_steps=100),
        point("worker", 1, 6, env_steps=999, run_id="another"),
    )
    assert found.total("worker", "env_steps") == 30 + 7 + 100
    assert found.total("worker", "unknown") == 0


def test_of_a_worker_that_is_started_for_weeks_sums_are_kept_not_each_start():
    found = Progress(RUN)
    for incarnation in range(1_000):
        for steps in (5, 10):
            found.add(point("worker", 0, incarnation, env_steps=steps))
    found.add(point("worker", 1, 3, env_steps=7))
    found.add(point("worker", 0, 17, env_steps=10))  # late, and counted already
    found.add(point("worker", 0, 998, env_steps=11))  # late, and one more
    assert found.total("worker", "env_steps") == 10_000 + 7 + 1
    assert sum(map(len, found._counters.values())) <= INCARNATIONS + 1


def test_the_mean_return_is_of_the_last_hundred_episodes():
    found = progress(episodes([0.0] * 50), episodes([1.0] * 60), episodes([3.0] * 40))
    assert found.mean_return == pytest.approx((60 * 1 + 40 * 3) / 100)
    assert found.episodes == 150
    assert Progress(RUN).mean_return is None


def test_a_curve_interpolates_between_the_learners_reports():
    found = progress(
        point("learner", at_ms=1000, env_steps=100),
        point("learner", at_ms=3000, env_steps=500),
    )
    assert found.env_steps_at([0, 1000, 2000, 9000]) == [100, 100, 300, 500]
    assert Progress(RUN).env_steps_at([5]) == [0]


def test_a_version_was_learnt_from_what_there_was_when_it_was_made():
    found = progress(
        point("learner", at_ms=1000, env_steps=100, updates=0),
        point("learner", at_ms=2000, env_steps=200, updates=0),
        point("learner", at_ms=3000, env_steps=600, updates=40),
        point("learner", at_ms=4000, env_steps=900, updates=40),
    )
    assert found.env_steps_after([0, 20, 40, 90]) == [200, 550, 900, 900]
    assert Progress(RUN).env_steps_after([5]) == [0]


def test_after_a_rebalance_the_newest_position_counts():
    found = progress(
        point("processor", 0, at_ms=2, positions=[Position("t", 0, 50, 40, 10)]),
        point("processor", 1, at_ms=1, positions=[Position("t", 0, 30, 30, 0)]),
        point("processor", 1, at_ms=1, positions=[Position("t", 1, 8, 8, 0)]),
    )
    positions = {p.partition: p.position for p in found.positions("processor")}
    assert positions == {0: 50, 1: 8}


STOP = StopSpec(env_steps=1000, mean_return=475.0, wall_s=60.0)


@pytest.mark.parametrize(
    ("records", "wall_s", "reached", "says"),
    [
        ([], 0, None, "nothing has happened"),
        ([evaluation(480)], 0, None, "one round may be luck"),
        ([evaluation(480), evaluation(470, 1, True)], 0, None, "it was"),
        ([evaluation(480), evaluation(480, 2, True)], 0, None, "another version"),
        ([evaluation(480, 1, True)], 0, None, "a confirmation of nothing"),
        ([evaluation(480), evaluation(475, 1, True)], 0, True, "confirmed"),
        ([evaluation(480, run_id="x"), evaluation(480, 1, True)], 0, None, "not ours"),
        ([point("learner", env_steps=999)], 0, None, "not yet"),
        ([point("learner", env_steps=1000)], 0, False, "1000 env steps"),
        ([], 60, False, "60 s have passed"),
    ],
)
def test_when_a_run_is_over(records, wall_s, reached, says):
    finish = judge(STOP, progress(*records), wall_s)
    assert (finish.reached if finish else None) is reached
    if finish:
        assert says in finish.reason


def test_without_a_target_a_limit_is_what_was_wanted():
    finish = judge(StopSpec(env_steps=5), progress(point("learner", env_steps=5)), 0)
    assert finish is not None and finish.reached


def test_a_summary_speaks_of_the_version_that_passed():
    found = progress(
        point("learner", env_steps=900, updates=50, policy_version=7, resumed=1),
        point("processor", dead_letters=2),
        evaluation(480, 3),
        evaluation(490, 3, True),
        evaluation(100, 7),
    )
    finish = judge(STOP, found, 0)
    summary = summarise(
        "e", found, finish, state="finished", reason="r", wall_s=2.0,
        env_steps_before=500,
    )  # fmt: skip
    assert (summary.policy_version, summary.eval_return_mean) == (3, 490.0)
    assert summary.policy == "3 (evaluated)"
    assert (summary.env_steps, summary.env_steps_per_s) == (900, 200.0)
    assert summary.resumed and summary.reached and summary.dead_letters == 2
    assert Summary.from_json(summary.to_json()) == summary


def test_evaluations_of_days_are_not_kept():
    found = progress(*(evaluation(480, version) for version in range(EVALUATIONS + 5)))
    assert len(found.evaluations) == EVALUATIONS
    found.add(evaluation(490, EVALUATIONS + 4, True))
    finish = judge(STOP, found, 0)
    assert finish is not None and finish.reached


@pytest.mark.parametrize(
    ("changed", "is_summary"),
    [
        ({}, True),
        ({"of_a_newer_version": 1}, True),
        ({"eval_return_mean": None}, True),
        ({"eval_return_mean": "475"}, False),
        ({"env_steps": "\x1b[2J"}, False),
        ({"wall_s": [1]}, False),
        ({"reason": 7}, False),
    ],
)
def test_a_summary_in_a_topic_is_one_that_can_be_shown(changed, is_summary):
    summary = summarise(
        "e", progress(), None, state="stopped", reason="r", wall_s=2.0,
        env_steps_before=0,
    )  # fmt: skip
    text = json.dumps(json.loads(summary.to_json()) | changed)
    status = RoleStatus("e", "r1", "experiment", 0, "stopped", "h", 1, 0, "", 0, text)
    assert (summary_of(status) is not None) == is_summary
