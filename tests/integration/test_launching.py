"""Specs that several write at once, and what is in force then."""

import os
import subprocess
import sys
from contextlib import ExitStack, closing

import pytest

from infra.control import launching
from infra.control.coordination import AlreadyRuns, Coordination
from infra.control.edits import in_state, scaled, with_values
from infra.control.experiments import (
    UnknownExperiment,
    forget_experiment,
    read_experiment,
    restore,
)
from infra.control.launching import Contended, NotLaunched, change
from infra.control.runs import Run
from infra.control.statuses import read_states, summary_of
from infra.kafka.topic_admin import describe_topics
from schemas.experiment import SpecError, from_values
from schemas.topics import EXPERIMENTS, METRICS, topic_name
from tests.integration.control_rig import PATIENCE_S, SESSION_S, rig  # noqa: F401
from tests.unit.test_experiment import values

pytestmark = pytest.mark.kafka


@pytest.fixture
def two_that_change(rig):  # noqa: F811
    """Processes that change an experiment, in rounds, and its name."""
    name = rig.launch(rig.spec(spec__seed=100)).published.experiment.name
    with ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen(
                [sys.executable, "-m", "tests.integration.changing", name, "20"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            ))
            for _ in range(2)
        ]  # fmt: skip
        for process in started:
            stack.callback(process.kill)
        yield started, name


def test_two_that_change_20_times_each_lose_no_change(rig, two_that_change):  # noqa: F811
    started, name = two_that_change
    for process in started:
        assert process.stdout.readline() == "ready\n"
    told = []
    # Until somebody was in somebody's way: else nothing is tested.
    while not told or len(rig.messages(name)) <= len(rig.in_force(name)[0]):
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        lines = [process.stdout.readline().strip() for process in started * 20]
        told += [int(line) for line in lines if line != "refused"]
    for process in started:
        process.stdin.close()
        assert process.wait(60) == 0
    found, entry = rig.in_force(name)
    # Each that was told so was in force, once; what was refused never was.
    assert sorted(told) == [each.offset for each in found[1:]]
    seeds = [each.experiment.spec.seed for each in found]
    assert seeds == list(range(100, 101 + len(told)))
    assert entry.refused is None  # compaction would keep the newest


def test_launched_twice_is_launched_once(rig):  # noqa: F811
    experiment = rig.spec()
    first, again = rig.launch(experiment), rig.launch(experiment)
    assert (first.changed, again.changed) == (True, False)
    assert again.published == first.published
    assert first.published.managed_by == "agents"
    assert len(rig.messages(experiment.name)) == 1

    wider = scaled(experiment, {"workers": 3})
    third = rig.launch(wider)
    assert third.changed and third.published.run_id == first.published.run_id
    fresh = rig.launch(wider, fresh=True)
    assert fresh.changed and fresh.published.run_id != first.published.run_id
    known = read_experiment(rig.settings, experiment.name)
    assert known == fresh.published
    # A role that was placed reads the very spec that it was placed with.
    old = read_experiment(rig.settings, experiment.name, first.published.offset)
    assert old == first.published


def test_what_would_mix_data_is_refused_and_makes_nothing(rig):  # noqa: F811
    experiment = rig.spec()
    rig.launch(experiment)
    other = with_values(experiment, {"spec.processor.gamma": 0.5})
    with pytest.raises(SpecError, match="gamma: expected 0.99"):
        rig.launch(other)
    assert len(rig.messages(experiment.name)) == 1
    assert rig.launch(other, fresh=True).changed


def test_who_is_claimed_is_not_launched_and_has_no_topics(rig):  # noqa: F811
    experiment = rig.spec()
    with closing(Coordination(rig.settings, SESSION_S)) as foreground:
        foreground.start(PATIENCE_S)
        foreground.claim_experiment(experiment.name)
        with pytest.raises(AlreadyRuns, match="found `rollstream run` on"):
            rig.launch(experiment)
    assert describe_topics(rig.settings, [topic_name(METRICS, experiment.name)]) == []
    assert rig.messages(experiment.name) == []


def test_a_foreground_run_leaves_what_was_launched_alone(rig):  # noqa: F811
    experiment = rig.spec()
    published = rig.launch(experiment).published
    with closing(Run(rig.settings, experiment)) as run:
        with pytest.raises(AlreadyRuns, match="the agents do.*rollstream stop"):
            run.publish()
        # Agents stop what somebody claims: it was not even tried.
        assert rig.coordination.claimed_by(experiment.name) is None
    change(rig.settings, experiment.name, lambda e: in_state(e, "stopped"))
    rig.coordination.register_role(experiment.name, "learner/0", 1)
    with closing(Run(rig.settings, experiment)) as run:
        with pytest.raises(AlreadyRuns, match="roles to live, found learner/0"):
            run.publish()
    rig.coordination.forget_role(experiment.name, "learner/0")
    with closing(Run(rig.settings, experiment)) as run:
        assert run.publish() is None
        assert run.published.managed_by == "run"
        assert run.published.run_id == published.run_id
    with pytest.raises(NotLaunched, match="rollstream launch"):
        change(rig.settings, experiment.name, lambda e: in_state(e, "paused"))
    # A run that is over may be launched: it goes on.
    again = rig.launch(experiment)
    assert again.changed and again.published.run_id == published.run_id


def test_a_foreground_run_of_what_is_finished_shows_that_again(rig):  # noqa: F811
    published = rig.launch(rig.spec()).published
    rig.finish(published)
    with closing(Run(rig.settings, published.experiment)) as run:
        assert run.publish().env_steps == 7_000
    assert len(rig.messages(published.experiment.name)) == 1


def test_what_is_finished_goes_on_when_its_goal_is_another(rig):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name = published.experiment.name
    rig.finish(published)
    assert not rig.launch(published.experiment).changed
    assert read_states(rig.settings, name)[name].state == "finished"
    further = with_values(published.experiment, {"spec.stop.envSteps": 9_000_000})
    again = rig.launch(further).published
    assert again.run_id == published.run_id
    state = read_states(rig.settings, name)[name]
    assert state.state == "pending" and summary_of(state).env_steps == 7_000


def test_a_change_that_came_second_is_made_again_from_what_came_first(rig):  # noqa: F811
    published = rig.launch(rig.spec(spec__seed=1)).published
    name, calls = published.experiment.name, []

    def edit(experiment):
        calls.append(experiment.spec.seed)
        if len(calls) == 1:  # another is quicker
            faster = with_values(experiment, {"spec.seed": 50})
            rig.publish(faster, published.offset, published.run_id)
        return with_values(experiment, {"spec.workers.replicas": 7})

    done = change(rig.settings, name, edit)
    assert calls == [1, 50]
    spec = read_experiment(rig.settings, name).experiment.spec
    assert done.published.experiment.spec == spec
    assert (spec.seed, spec.workers.replicas) == (50, 7)


def test_a_change_that_is_too_late_leaves_a_deleted_one_deleted(rig):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name, calls = published.experiment.name, []

    def edit(experiment):
        calls.append(1)
        forget_experiment(rig.sender, name)
        return in_state(experiment, "paused")

    with pytest.raises(UnknownExperiment, match="rollstream ps"):
        change(rig.settings, name, edit)
    assert calls == [1]
    _, entry = rig.in_force(name)
    # The late record would be kept by compaction, and be a first one then.
    assert entry.deleted and entry.refused is None
    assert rig.messages(name)[-1].tombstone


def test_a_writer_that_never_is_first_gives_up_and_leaves_no_trace(
    rig,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setattr(launching, "_TRIES", 3)
    name = rig.launch(rig.spec(spec__seed=0)).published.experiment.name

    def edit(experiment):
        known = read_experiment(rig.settings, name)
        faster = with_values(experiment, {"spec.seed": experiment.spec.seed + 1})
        rig.publish(faster, known.offset, known.run_id)
        return in_state(experiment, "paused")

    with pytest.raises(Contended, match="3 tries"):
        change(rig.settings, name, edit)
    _, entry = rig.in_force(name)
    spec = entry.accepted.experiment.spec
    assert (spec.seed, spec.state, entry.refused) == (3, "running", None)


def test_what_is_in_force_is_restored_where_the_newest_is_refused(rig):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name = published.experiment.name
    for garbage in (b"garbage", b"\0" * 5):
        rig.sender.send_and_wait(topic_name(EXPERIMENTS), garbage, name)
    _, entry = rig.in_force(name)
    assert entry.refused.offset == entry.newest_offset
    offset = restore(rig.sender, name, entry)
    _, entry = rig.in_force(name)
    assert (entry.accepted.offset, entry.refused) == (offset, None)
    assert entry.accepted.experiment == published.experiment
    assert entry.accepted.run_id == published.run_id
    assert restore(rig.sender, name, entry) is None


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({"workers": 5}, "expected bounds, for its number follows the load"),
        ({"learner": 2}, "expected workers or processor, found 'learner'"),
        ({"workers": (5, 2)}, "min: expected at most max 2"),
        ({"processor": (1, 9)}, "processor.max: expected at most topics.partitions"),
    ],
)
def test_a_scale_that_cannot_be_is_refused(counts, says):
    elastic = scaled(from_values(values()), {"workers": (2, 8)})
    assert (elastic.spec.workers.min, elastic.spec.workers.max) == (2, 8)
    with pytest.raises(SpecError, match=says):
        scaled(elastic, counts)
