"""Who is timed on CartPole, for how long, and when ours is fast enough."""

import pytest

from benchmarks.beside.scripts.rates import rate_of_second_half
from benchmarks.beside.section import Place
from benchmarks.beside.training import IMPALA, RLLIB, TRAINING, appo_job, seconds_of
from benchmarks.learning.tasks import THROUGHPUT, TIMED_S, chosen

(TASK,) = chosen([THROUGHPUT], quick=False)


def test_ours_is_stopped_and_others_are_told_the_time():
    ours, theirs = (s.lasting(7.0) for s in (TASK.sides[0], TASK.sides[-1]))
    assert (ours.stop, ours.seconds) == ("{wallS: 7}", 7.0)
    assert (theirs.stop, theirs.seconds) == ("none", 7.0)


def test_how_long_it_is_timed_makes_no_other_task_of_it():
    side = TASK.sides[-1]
    assert TASK.told_sha256(side) == TASK.told_sha256(side.lasting(7.0))
    assert side.seconds == TIMED_S


def test_quick_is_shorter_for_everyone():
    for side in TASK.sides:
        assert seconds_of(side, quick=True) < seconds_of(side, quick=False)


def test_sample_factory_is_told_our_workers_environments_and_network(tmp_path):
    job = appo_job(Place(None, {}, tmp_path, True, print))
    assert (job["workers"], job["envs"], job["hidden"]) == (2, 32, [64, 64])
    assert job["batch"] % (job["unroll"] * job["envs"]) == 0
    assert job["env_id"] == "CartPole-v1"


def test_the_rate_is_of_the_later_half_of_the_time():
    told = [(0.0, 0), (1.0, 10), (5.0, 50), (6.0, 150), (10.0, 550)]
    assert rate_of_second_half(told) == 100.0  # 500 steps in 5 s
    assert rate_of_second_half(told[:1]) == 0.0


@pytest.mark.parametrize(("rate", "reached"), [(2_999, False), (3_000, True)])
def test_three_times_rllib_is_the_goal(rate, reached):
    (goal,) = TRAINING.goals
    found = {IMPALA: {"steps_per_s": rate}, RLLIB: {"steps_per_s": 1_000}}
    assert goal.reached(found) is reached
