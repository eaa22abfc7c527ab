"""What is left of an experiment that was deleted: nothing; and of others: all."""

import secrets
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
from confluent_kafka import TopicPartition

from infra.control import deletion
from infra.control.coordination import AlreadyRuns
from infra.control.deletion import (
    StillRunning,
    clean_up,
    delete_experiment,
    find_belongings,
)
from infra.control.edits import with_values
from infra.control.experiments import UnknownExperiment, read_experiment
from infra.control.launching import change
from infra.control.members import ensure_shared_topics
from infra.errors import RollstreamError
from infra.kafka.clients import make_consumer
from infra.kafka.reading import latest_by_key
from schemas.topics import (
    EXPERIMENTS,
    REPLAY,
    STATUS,
    TOPICS,
    TRAJECTORIES,
    group_name,
    topic_name,
)
from tests.integration.control_rig import rig  # noqa: F401

pytestmark = pytest.mark.kafka
PER_EXPERIMENT = sum(topic.per_experiment for topic in TOPICS)


class Killed(BaseException):
    """As if the process had been killed."""


@pytest.fixture
def make_two(rig):  # noqa: F811
    """`a` and `a-b`, with all that an experiment leaves."""

    def make():
        name = f"d{secrets.token_hex(3)}"
        for each in (name, f"{name}-b"):
            published = rig.launch(rig.spec(each)).published
            rig.finish(published)
            for role, topic in (("processor", TRAJECTORIES), ("learner", REPLAY)):
                commit(rig.settings, group_name(each, role), topic_name(topic, each))
        return name, f"{name}-b"

    return make


def commit(settings, group, topic):
    with closing(make_consumer(settings, group=group, client_id="test")) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)


def assert_whole(rig, name):  # noqa: F811
    left = find_belongings(rig.settings, name)
    assert (len(left.topics), len(left.groups)) == (PER_EXPERIMENT, 2)
    assert left.statuses == (f"{name}/experiment/0",)
    assert read_experiment(rig.settings, name).experiment.name == name


def assert_gone(rig, name):  # noqa: F811
    assert not find_belongings(rig.settings, name)
    assert name not in latest_by_key(rig.settings, topic_name(EXPERIMENTS))
    keys = latest_by_key(rig.settings, topic_name(STATUS))
    assert not [key for key in keys if key.startswith(f"{name}/")]
    with pytest.raises(UnknownExperiment):
        read_experiment(rig.settings, name)
    client = rig.coordination.client
    assert client.exists(f"/rollstream/roles/{name}") is None


def delete(rig, name, **options):  # noqa: F811
    return delete_experiment(rig.settings, rig.coordination, name, **options)


def test_of_two_names_that_begin_alike_only_one_is_deleted(rig, make_two):  # noqa: F811
    name, other = make_two()
    rig.coordination.register_role(name, "worker/0", 1)
    rig.coordination.forget_role(name, "worker/0")
    gone = delete(rig, name)
    assert (len(gone.topics), len(gone.groups)) == (PER_EXPERIMENT, 2)
    assert_gone(rig, name)
    assert_whole(rig, other)
    with pytest.raises(UnknownExperiment):
        delete(rig, name)
    # The same name is a new experiment.
    again = rig.launch(rig.spec(name)).published
    assert again.run_id != ""
    delete(rig, other)
    assert read_experiment(rig.settings, name) == again


def test_killed_after_each_step_it_goes_on(rig, make_two):  # noqa: F811
    name, other = make_two()
    for step in ("groups", "topics", "statuses", "spec"):
        # Until the last step it is still there, and stopped.
        if step != "groups":
            known = read_experiment(rig.settings, name)
            assert known.experiment.spec.state == "stopped"
        told = []

        def die(line, step=step, told=told):
            told.append(line)
            if step in line:
                raise Killed

        with pytest.raises(Killed):
            delete(rig, name, report=die)
        assert len(told) == 1, "what was done is not done again"
    with pytest.raises(UnknownExperiment):  # there is nothing left to do
        delete(rig, name)
    assert_gone(rig, name)
    assert_whole(rig, other)


def test_the_command_killed_in_the_middle_is_repeated(rig, make_two):  # noqa: F811
    name, other = make_two()
    command = [sys.executable, "-m", "rollstream.cli", "delete", name, "--yes"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as killed:
        assert "groups" in killed.stderr.readline()
        killed.kill()
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert_gone(rig, name)
    assert_whole(rig, other)


def test_roles_that_live_are_waited_for_and_named(rig):  # noqa: F811
    name = rig.launch(rig.spec()).published.experiment.name
    rig.coordination.register_role(name, "learner/0", 1)
    with pytest.raises(StillRunning, match="within 0.3 s, found learner/0"):
        delete(rig, name, timeout_s=0.3)
    assert len(find_belongings(rig.settings, name).topics) == PER_EXPERIMENT
    told = []

    def end(line):
        told.append(line)
        rig.coordination.forget_role(name, "learner/0")

    delete(rig, name, report=end, timeout_s=60.0)
    assert told[0] == "waiting for learner/0"
    assert_gone(rig, name)


def test_a_group_that_has_members_yet_is_waited_for(rig, monkeypatch):  # noqa: F811
    name = rig.launch(rig.spec()).published.experiment.name
    topic, group = topic_name(TRAJECTORIES, name), group_name(name, "processor")
    member = make_consumer(rig.settings, group=group, client_id="member")
    leaving, is_deleted = threading.Thread(target=member.close), deletion._is_deleted

    def looked(*arguments):
        found = is_deleted(*arguments)
        if not found and leaving.ident is None:
            leaving.start()
        return found

    monkeypatch.setattr(deletion, "_is_deleted", looked)
    try:
        member.subscribe([topic])
        deadline_s = time.monotonic() + 60
        while not member.assignment():
            member.poll(0.1)
            assert time.monotonic() < deadline_s
        delete(rig, name)
        assert leaving.ident is not None, "it was waited for"
    finally:
        if leaving.ident is None:
            leaving.start()
        leaving.join()
    assert_gone(rig, name)


def test_who_is_claimed_is_not_deleted(rig):  # noqa: F811
    name = rig.launch(rig.spec()).published.experiment.name
    rig.coordination.claim_experiment(name)
    with pytest.raises(AlreadyRuns):
        delete(rig, name)
    assert read_experiment(rig.settings, name).experiment.spec.state == "running"


def test_launched_again_while_it_is_deleted_keeps_its_spec(rig, monkeypatch):  # noqa: F811
    name = rig.launch(rig.spec()).published.experiment.name

    def meanwhile(settings, belongings, report):
        change(settings, name, lambda e: with_values(e, {"spec.state": "running"}))

    monkeypatch.setattr(deletion, "_remove", meanwhile)
    with pytest.raises(RollstreamError, match="its spec was changed"):
        delete(rig, name)
    assert read_experiment(rig.settings, name).experiment.spec.state == "running"


def test_what_nobody_can_read_may_be_deleted(rig):  # noqa: F811
    name = rig.spec().name
    ensure_shared_topics(rig.settings)  # nobody may have launched anything yet
    rig.sender.send_and_wait(topic_name(EXPERIMENTS), b"garbage", name)
    delete(rig, name)
    assert_gone(rig, name)
    assert rig.messages(name)[-1].tombstone


def test_a_leader_that_cleans_up_touches_only_that_name(rig, make_two):  # noqa: F811
    name, other = make_two()
    clean_up(rig.settings, other)
    assert not find_belongings(rig.settings, other)
    assert_whole(rig, name)
