"""Records of one run -> how it is: what counts, what is kept, what is forgotten."""

import math

import pytest

from infra.control.desired import PublishedExperiment
from infra.control.statuses import make_status
from infra.kafka.reading import Message
from infra.monitoring.counter_rates import CounterRates
from infra.monitoring.experience import GONE_S
from infra.monitoring.lag.model import Place, Standing
from infra.monitoring.metric_records import MAX_VALUES
from infra.monitoring.run_fold import RunFold
from infra.monitoring.run_metrics import MAX_PROCESSES
from infra.monitoring.value_kinds import COUNTERS
from learner.counters import Counters
from schemas.codec import encode
from schemas.experiment import from_values
from schemas.records import Position
from schemas.role_parts import ROLES
from stream_processors.telemetry import Counts
from tests.unit.test_experiment import values
from tests.unit.test_overview_figures import told
from tests.unit.test_progress import RUN, episodes, evaluation, point

NOW_S = 1_000.0
SPEC = from_values(values(metadata__name="e", spec__workers__replicas=2))
AGENTS = PublishedExperiment(SPEC, RUN, 7, "agents")


def message(record, at_s=NOW_S):
    return Message("t", 0, 0, int(at_s * 1000), "k", encode(record))


def fold(*records, at_s=NOW_S):
    run = RunFold("e", RUN)
    for record in records:
        run.hear(message(record, at_s))
    return run


def view(run, status=None, now_s=NOW_S, published=AGENTS):
    return run.view(published, status, now_s)


def test_figures_of_a_run():
    run = RunFold("e", RUN)
    for n in range(6):
        run.hear(
            message(
                point(
                    "learner", env_steps=100.0 * n, updates=10.0 * n, loss=0.5,
                    policy_version=3.0, lost_steps=2.0, dead_letters=1.0,
                ),
                NOW_S - 5 + n,
            )
        )  # fmt: skip
    run.hear(message(point("processor", dead_letters=4.0)))
    run.hear(message(episodes([10.0, 30.0])))
    found = view(run)
    assert (found.env_steps, found.updates, found.policy_version) == (500, 50, 3)
    assert (found.env_steps_per_s, found.updates_per_s) == (100.0, 10.0)
    assert (found.episodes, found.mean_return, found.is_greedy) == (2, 20.0, False)
    assert (found.loss, found.dead_letters) == (0.5, 5)
    assert found.experience.lost_steps == 2
    run.hear(message(evaluation(70.0)))
    assert (view(run).mean_return, view(run).is_greedy) == (70.0, True)


def test_nothing_is_known_of_a_run_that_was_not_heard():
    found = view(RunFold("e", RUN))
    assert (found.state, found.env_steps, found.env_steps_per_s) == ("pending", 0, None)
    assert (found.policy_version, found.loss, found.processes) == (-1, None, ())
    by_run = PublishedExperiment(SPEC, RUN, 7, "run")
    assert view(RunFold("e", RUN), published=by_run).state == "unknown"


def test_the_status_counts_where_metrics_have_expired_and_only_of_this_run():
    run = RunFold("e", RUN)
    status = told(8_000, 60.0, "finished", RUN)
    found = view(run, status)
    assert (found.state, found.env_steps, found.mean_return) == ("finished", 8_000, 60)
    other = view(run, told(8_000, 60.0, "finished", "another"))
    assert (other.state, other.env_steps) == ("pending", 0)


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_a_run_that_is_over_has_no_processes_and_no_rates(state):
    run = RunFold("e", RUN)
    for n in range(3):
        run.hear(message(point("learner", env_steps=float(n)), NOW_S + n))
    assert view(run, now_s=NOW_S + 3).processes
    found = view(run, told(1, None, state, RUN), NOW_S + 3)
    assert (found.processes, found.env_steps_per_s, found.env_steps) == ((), None, 2)


def test_texts_of_a_status_are_one_printable_line():
    status = make_status(
        "e", RUN, "experiment", 0, "run\nning", "a\x1b[31m\n" + "b" * 999
    )
    found = view(RunFold("e", RUN), status)
    assert found.state == "run ning"
    assert found.reason.startswith("a\N{REPLACEMENT CHARACTER}[31m bbb")
    assert len(found.reason) == 500


def test_a_process_that_nobody_misses_is_forgotten_and_one_that_is_missed_is_not():
    run = fold(*(point("worker", index, env_steps=1.0) for index in (0, 1, 2)))
    assert [each.index for each in view(run).processes] == [0, 1, 2]
    later = view(run, now_s=NOW_S + GONE_S + 1)
    assert [each.index for each in later.processes] == [0, 1]
    assert later.processes[0].heard_at_s == NOW_S


def test_a_beat_says_that_a_process_lives_and_changes_nothing_else():
    run = fold(point("worker", env_steps=5.0))
    run.hear(message(point("worker"), NOW_S + 3))
    (worker,) = view(run, now_s=NOW_S + 3).processes
    assert (worker.heard_at_s, worker.values) == (NOW_S + 3, {"env_steps": 5.0})


@pytest.mark.parametrize(
    "strange",
    [
        point("worker", run_id="another", env_steps=9.0),
        point("admin", env_steps=9.0),
        point("worker", **{f"v{n}": 1.0 for n in range(MAX_VALUES + 1)}),
        evaluation(5.0, run_id="another"),
        episodes([]),
    ],
    ids=["another run", "no role", "too many values", "another's", "no episodes"],
)
def test_what_is_strange_changes_nothing(strange):
    assert view(fold(strange)) == view(fold())


def test_garbage_and_numbers_that_are_none_are_survived():
    run = fold(point("learner", env_steps=math.nan, updates=math.inf, loss=math.nan))
    run.hear(Message("t", 0, 0, 0, "k", b"\x00garbage"))
    run.tell(Message("t", 0, 0, 0, "k", b""))
    found = view(run)
    assert (found.env_steps, found.updates) == (0, 0)
    assert found.loss is not None and math.isnan(found.loss)


def test_no_more_processes_are_kept_than_there_can_be():
    run = fold(*(point("worker", n, x=1.0) for n in range(MAX_PROCESSES + 5)))
    assert len(view(run).processes) == MAX_PROCESSES


def test_standings_are_of_who_spoke_last_and_of_topics_that_a_role_reads():
    topic = "rollstream.e.trajectories"
    run = RunFold("e", RUN)
    for index, position, held, at_s in ((0, 10, 2, 1.0), (1, 15, 0, 3.0)):
        told_ = Position(topic, 0, position, 5, held)
        run.hear(message(point("processor", index, positions=[told_], x=1.0), at_s))
    elsewhere = Position("rollstream.f.replay", 0, 1, 1, 0)
    run.hear(message(point("learner", positions=[elsewhere], x=1.0)))
    run.hear(message(point("worker", positions=[Position(topic, 1, 1, 1, 0)], x=1.0)))
    run.hear(message(point("processor", 1), 9.0))
    place = Place("rollstream.e.processor", topic, 0)
    assert run.standings == {place: Standing(15, 0, 3.0)}


def test_a_learner_that_can_learn_waits_on_purpose():
    here = Position("rollstream.e.replay", 1, 7, 3, 0)
    place = Place("rollstream.e.learner", here.topic, 1)
    for can_learn in (0.0, 1.0):
        run = fold(point("learner", positions=[here], can_learn=can_learn))
        assert run.standings == {place: Standing(7, 0, NOW_S, bool(can_learn))}


def test_rates_are_over_the_window_and_end_with_an_incarnation():
    rates = CounterRates()
    assert rates.at(0.0) == {}
    for second in range(30):
        rates.add(1, float(second), {"steps": 5.0 * second * (second < 20) or 95.0})
    assert rates.at(29.0) == {"steps": 0.0}
    assert rates.at(40.0) == {}
    rates.add(2, 30.0, {"steps": 0.0})
    assert rates.at(30.0) == {}
    rates.add(2, 32.0, {"steps": 8.0, "new": 1.0})
    assert rates.at(32.0) == {"steps": 4.0}
    rates.add(2, 32.0, {"steps": 10.0})
    assert rates.at(32.0) == {"steps": 5.0}


def test_counters_are_those_that_roles_count():
    assert COUNTERS.keys() == set(ROLES)
    assert Counts().values().keys() == COUNTERS["processor"]
    assert Counters().state().keys() <= COUNTERS["learner"]
