"""A learner that learns from several experiments' transitions, and what it tells."""

import contextlib
import dataclasses
import json
import secrets
import signal
import time

import pytest

from infra.control.experiments import publish_experiment
from infra.errors import RollstreamError
from infra.kafka.topic_admin import delete_topics, describe_topics
from learner import trim
from learner.log_start import LogMismatch
from learner.source_runs import SourceMismatch
from schemas.experiment import from_values
from schemas.records import NO_POLICY, TrainedOn
from schemas.topics import LINEAGE, REPLAY, TRAJECTORIES
from tests.integration.bundled_export import PRELUDE
from tests.integration.learner_host import learner_host  # noqa: F401
from tests.integration.learner_rig import (  # noqa: F401
    ENV,
    Rig,
    cached_export,
    experiment,
)
from tests.integration.test_learner_resume import _KILL

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

ROWS = 8 * 8 - 1  # of a batch; one of its 64 is not valid
KILLS = [
    # After a checkpoint is durable, when one of both logs is committed.
    "from learner.feed import Feed\nkill_at_call(Feed, 'commit', 4)",
    "from learner.loop import Learner\nkill_at_call(Learner, '_update', 30)",
    # Between two batches of whichever.
    "from learner.intake import Intake\nkill_at_call(Intake, '_count', 25)",
]


@pytest.fixture
def rigs(settings, cached_export):  # noqa: F811
    """Make experiments; all that they started is ended."""
    with contextlib.ExitStack() as made:

        def make(*sources, **learner):
            named = [{"experiment": rig.name, "weight": w} for rig, w in sources]
            if sources:
                learner["sources"] = [{"weight": learner.pop("weight", 3)}, *named]
            rig = Rig(settings, experiment(**learner))
            return made.enter_context(contextlib.closing(rig))

        yield make


def trained_on(rig, *others):
    """Env steps by whose trajectories they are of, as the newest checkpoint has it."""
    names = {each.topic(TRAJECTORIES): each for each in (rig, *others)}
    found = {each: 0 for each in (rig, *others)}
    for item in rig.checkpoint_state()["trained_on"]:
        found[names[item["topic"]]] += item["env_steps"]
    return [found[each] for each in (rig, *others)]


@pytest.mark.chaos
def test_kills_lose_nothing_and_count_nothing_twice_of_either_source(
    rigs,
    learner_host,  # noqa: F811
):
    past = rigs()
    # Two rows of the past to one live: as fast as they are sampled.
    # Room for all of it, however slow the machine is.
    replay = {"capacity": 262_144, "minSize": 128}
    live = rigs((past, 2), weight=1, replay=replay)
    streams = [(past, "w0", past.start_worker()), (live, "w0", live.start_worker())]
    streams.append((past, "w1", past.start_worker(1)))
    sequence = 0
    for kill in KILLS:
        learner_host.start(live, PRELUDE + _KILL + kill)
        while (code := learner_host.poll()) is None:
            # Something has to be new for every checkpoint, update and batch.
            for rig, worker, incarnation in streams:
                rig.send(worker, incarnation, sequence)
            sequence += 1
            time.sleep(0.1)
        assert code == -signal.SIGKILL
    learner = live.start_thread()

    def is_read():
        """The past is let in as fast as rows of the worker let it be sampled."""
        live.send("w0", streams[1][2], 1 + max(number for *_, number in live.journal))
        committed = live.committed(past.topic(REPLAY))
        return committed == {0: sequence, 1: sequence}

    live.wait_for(is_read, learner=learner, timeout_s=240.0)
    whole = live.unique_rows + past.unique_rows
    live.wait_for(lambda: live.metrics().get("env_steps") == whole, learner=learner)
    assert learner.stop() == 0
    values = live.metrics()
    assert values["resumed"] == 1
    assert values["lost_steps"] == values["duplicate_steps"] == 0
    assert values["foreign_batches"] == values["unrestorable_rows"] == 0
    assert trained_on(live, past) == [live.unique_rows, past.unique_rows]
    assert values["source_rows/" + live.name] == live.unique_rows
    assert values["source_rows/" + past.name] == past.unique_rows
    assert values["samples"] == 32 * values["updates"]
    # All is committed to this learner's own group, the past's as well.
    assert live.committed() == {0: len(live.journal), 1: 0}
    assert live.committed(past.topic(REPLAY)) == {0: sequence, 1: sequence}
    assert past.committed() == {}


def test_batches_are_mixed_by_weight_and_only_its_own_workers_get_credit(rigs):
    past = rigs()
    incarnation = past.start_worker(5)
    past.send("w5", incarnation, *range(120))
    live = rigs((past, 1))
    own = live.start_worker()
    live.send("w0", own, *range(60))
    learner = live.start_thread()
    live.wait_for(
        lambda: (
            live.metrics().get("env_steps", 0) >= 80 * ROWS
            and live.metrics()["samples_owed"] < 32
        ),
        learner=learner,
    )
    assert learner.stop() == 0
    values = live.metrics()
    # Own rows first or last, more or less: as soon as there are both it is 3 to 1.
    drawn = [values[f"source_samples/{rig.name}"] for rig in (live, past)]
    assert sum(drawn) == values["samples"]
    assert drawn[0] / sum(drawn) == pytest.approx(0.75, abs=0.1)
    assert {worker for c in live.credits() for worker in c.allowed} == {"w0"}
    assert past.credits() == []


def test_only_its_own_topic_is_trimmed(rigs, monkeypatch):
    monkeypatch.setattr(trim.Trimmer.__init__, "__defaults__", (0.0,))
    past = rigs()
    past.send("w0", past.start_worker(), *range(60))
    live = rigs((past, 1), weight=1, replay={"capacity": 1024, "minSize": 128})
    live.send("w0", live.start_worker(), *range(60))
    live.run_until(lambda: _first_offset(live) > 40)
    # Half of the capacity each: 8 batches of 64 rows.
    assert live.metrics()["source_rows/" + past.name] <= 8 * ROWS
    live.run_until(lambda: live.metrics()["resumed"])
    values = live.metrics()
    assert values["source_rows/" + live.name] == 8 * ROWS
    assert _first_offset(past) == 0
    assert values["unrestorable_rows"] == 0 == values["expired_records"]


def test_a_learner_without_workers_learns_from_a_past_alone(rigs):
    past = rigs()
    incarnation = past.start_worker(role="replayer")
    past.send("w4", incarnation, *range(20))
    only = [{"experiment": past.name}]
    alone = rigs(sources=only)
    alone.run_until(
        lambda: (
            alone.metrics().get("env_steps") == 20 * ROWS
            and alone.metrics()["samples_owed"] < 32
        )
    )
    assert alone.metrics()["updates"] > 0
    assert alone.committed() == {}
    assert alone.committed(past.topic(REPLAY)) == {0: 20, 1: 0}
    # The run that was in force when it first started stays, whatever comes after.
    past.run_id += "-anew"
    publish_experiment(past.sender, past.experiment, past.run_id, past.spec_offset)
    past.send("w4", incarnation + 9, *range(5))
    alone.run_until(lambda: alone.metrics().get("foreign_batches") == 5)
    assert alone.metrics()["env_steps"] == 20 * ROWS


def test_a_replayers_description_is_enough_and_all_of_the_log_is_read(rigs):
    rig = rigs()
    rig.send("w0", 3, *range(4))
    rig.start_worker(role="replayer")
    rig.run_until(lambda: rig.metrics().get("env_steps") == 4 * ROWS)
    assert rig.metrics()["lost_steps"] == 0


def test_a_source_that_was_taken_out_goes_on_where_it_was_when_it_is_back(rigs):
    past = rigs()
    incarnation = past.start_worker()
    past.send("w0", incarnation, *range(10))
    live = rigs((past, 1))
    live.start_worker()
    live.run_until(lambda: live.metrics().get("env_steps") == 10 * ROWS)
    with_past = live.experiment
    live.experiment = experiment(live.name)
    live.send("w1", live.start_worker(1), *range(6))
    live.run_until(lambda: live.metrics().get("env_steps") == 16 * ROWS)
    assert live.metrics()["buffer_rows"] == 6 * ROWS
    past.send("w0", incarnation, *range(10, 15))
    live.experiment = with_past
    live.run_until(lambda: live.metrics().get("env_steps") == 21 * ROWS)
    values = live.metrics()
    assert values["buffer_rows"] == 21 * ROWS
    assert values["duplicate_steps"] == values["lost_steps"] == 0


def test_a_version_is_told_of_with_what_it_was_trained_on(rigs):
    past = rigs()
    past.send("w0", past.start_worker(), *range(10))
    # Each update is a version: the last one is of when all had been taken in.
    each = {"publishEveryUpdates": 1, "publishIntervalMs": 0}
    live = rigs((past, 1), weight=1, **each)
    incarnation = live.start_worker()
    live.send("w0", incarnation, *range(10))
    live.run_until(
        lambda: (
            live.metrics().get("env_steps") == 20 * ROWS
            and live.metrics()["samples_owed"] < 32
            and live.records(LINEAGE, TrainedOn)
        )
    )
    live.send("w0", incarnation, *range(10, 40))
    live.run_until(
        lambda: (
            live.metrics()["env_steps"] == 50 * ROWS
            and live.metrics()["samples_owed"] < 32
        )
    )
    records = live.records(LINEAGE, TrainedOn)
    published = {(policy.epoch, policy.version) for policy in live.policies()}
    told = [(record.policy.epoch, record.policy.version) for record in records]
    assert set(told) <= published and told == sorted(set(told))
    newest = {item.topic: item for item in records[-1].data}
    assert newest.keys() == {rig.topic(TRAJECTORIES) for rig in (live, past)}
    own = newest[live.topic(TRAJECTORIES)]
    assert (own.first_offset, own.next_offset) == (0, 40)
    assert own.env_steps == 40 * ROWS
    assert own.first_policy == own.last_policy == NO_POLICY
    assert newest[past.topic(TRAJECTORIES)].env_steps == 10 * ROWS
    assert records[-1].train_step == live.metrics()["updates"]


def test_sources_that_do_not_go_together_are_refused_with_the_reason(rigs):
    past = rigs()
    live = rigs((past, 1))
    live.start_worker()
    past.start_worker(
        env=dataclasses.replace(
            ENV, action=(dataclasses.replace(ENV.action[0], n=(3,)),)
        )
    )
    expected = (
        f"{past.name}: expected the action space of CartPole-v1, plain discrete "
        r"<i8\[\] of \[2\], found that of CartPole-v1, plain discrete <i8\[\] of \[3\]"
    )
    with pytest.raises(SourceMismatch, match=expected):
        live.start_thread().result()
    assert "learner.sources" in live.events("learner-stopped")[0]


def test_returns_of_another_discount_are_refused(rigs):
    past = rigs()
    values = json.loads(past.experiment.to_json())
    values["spec"]["processor"]["gamma"] = 0.5
    past.run_id += "-anew"
    publish_experiment(past.sender, from_values(values), past.run_id, past.spec_offset)
    live = rigs((past, 1))
    live.start_worker()
    with pytest.raises(
        SourceMismatch, match=r"processor.gamma 0.99 as here, found 0.5"
    ):
        live.start_thread().result()


def test_an_experiment_that_there_is_not_or_that_is_there_twice_is_named(rigs):
    live = rigs(sources=[{"experiment": "no-such-one"}])
    with pytest.raises(RollstreamError, match=r"learner.sources: .*'no-such-one'"):
        live.start_thread().result()
    name = f"twice-{secrets.token_hex(4)}"
    twice = rigs(name=name, sources=[{}, {"experiment": name}])
    expected = f"found {name} by its name and without one"
    with pytest.raises(SourceMismatch, match=expected):
        twice.start_thread().result()


def test_a_source_whose_topic_is_gone_stops_it_and_says_how_to_go_on(rigs):
    past = rigs()
    past.send("w0", past.start_worker(), *range(10))
    live = rigs((past, 1))
    live.start_worker()
    learner = live.start_thread()
    live.wait_for(lambda: live.committed(past.topic(REPLAY)), learner=learner)
    delete_topics(live.settings, [past.topic(REPLAY)])
    with pytest.raises(LogMismatch, match=r"taken out of learner.sources") as found:
        learner.result()
    assert past.topic(REPLAY) in str(found.value)


def _first_offset(rig):
    (found,) = describe_topics(rig.settings, [rig.topic(REPLAY)])
    return found.beginning_offsets[0]
