"""What is lost is counted to the step, told, and never jumped over in silence.

Elsewhere: a checkpoint directory that refuses (F22), a garbled checkpoint (F24) and a
spec that says to fail on expiry are in tests/integration/test_learner_resume.py.
"""

import json
import signal
from contextlib import closing, contextmanager

import pytest
from confluent_kafka.admin import NewPartitions

from infra.control.members import ensure_experiment_topics
from infra.errors import TopicDrift
from infra.kafka.clients import make_admin, make_consumer, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import committed_offsets
from infra.kafka.topic_admin import alter_config, delete_topics
from learner.log_start import LogMismatch
from rollstream.dead_letters_command import dead_letters
from rollstream.status_command import status
from schemas.codec import decode, encode
from schemas.records import StreamEnd, TransitionBatch, Unroll
from schemas.topics import DEAD_LETTERS, REPLAY, TRAJECTORIES, group_name
from tests.integration.learner_rig import (  # noqa: F401
    cached_export,
    experiment,
)
from tests.integration.pipeline_rig import (
    ROWS,
    STEPS,
    PipelineRig,
    make_unroll,
    processor,
    put,
    put_unrolls,
    records,
    wait,
    wait_until,
    worker,
)

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.timeout(600)]


@contextmanager
def learning(rig):
    learner = rig.start_thread()
    yield learner
    assert learner.stop() == 0


def status_of(rig, capsys):
    code = status(rig.settings, rig.name, as_json=True)
    return code, json.loads(capsys.readouterr().out)


def num_batches(rig):
    """How many there are, each once: a processor may have begun again."""
    found = records(rig, REPLAY, TransitionBatch)
    return len({(each.worker, each.incarnation, each.sequence) for each in found})


def end_stream(rig, worker, incarnation):
    put(rig, StreamEnd(rig.name, rig.run_id, worker, incarnation, "done", 0))


# ---- F25: retention passes consumers that are down


def test_what_expired_before_both_consumers_is_counted_to_the_step(rig, capsys):
    worker = rig.start_worker(0)
    put_unrolls(rig, "w0", worker, *range(10))
    with processor(rig), learning(rig) as learner:
        # The last one waits for the rows after it.
        wait(rig, learner, env_steps=9 * ROWS)
        wait_until(rig, lambda: committed(rig) == 9, "9 are committed", learner)
    put_unrolls(rig, "w0", worker, *range(10, 30))
    # Unroll 9 was handled, not acknowledged: it is lost as well, 7 in all.
    rig.delete_before(TRAJECTORIES, 16)
    with processor(rig):
        end_stream(rig, "w0", worker)
        wait_until(rig, lambda: num_batches(rig) == 9 + 14, "16 to 29 handled")
    assert rig.metrics_of("processor")["expired_records"] == 7
    (alert,) = rig.alerts("expired-records")
    assert "[0]: 7 records were deleted" in alert.reason
    # Of those, the first 4 expire before the learner is back: unrolls 16 to 19.
    rig.delete_before(REPLAY, 9 + 4)
    with learning(rig) as learner:
        wait(rig, learner, env_steps=(9 + 10) * ROWS, lost_steps=(7 + 4) * STEPS)
    assert rig.metrics_of("learner")["expired_records"] == 4
    code, found = status_of(rig, capsys)
    assert (code, found["summary"]["expired_records"]) == (3, 11)
    assert found["summary"]["lost_steps"] == 11 * STEPS
    kinds = [(alert["role"], alert["kind"]) for alert in found["alerts"]]
    assert kinds.count(("processor", "expired-records")) == 1
    assert kinds.count(("learner", "expired-records")) == 1
    assert {group["lag"] for group in found["groups"]} == {0}


def test_what_expired_before_a_frozen_processor_is_counted_as_well(rig):
    worker = rig.start_worker(0)
    put_unrolls(rig, "w0", worker, *range(5))
    with processor(rig) as child, learning(rig) as learner:
        wait(rig, learner, env_steps=4 * ROWS)
        child.send_signal(signal.SIGSTOP)
        put_unrolls(rig, "w0", worker, *range(5, 15))
        rig.delete_before(TRAJECTORIES, 12)
        child.send_signal(signal.SIGCONT)
        end_stream(rig, "w0", worker)
        # A fetch that was under way may have brought it one more, or a few.
        wait_until(rig, lambda: expired(rig) > 0, "it tells", learner)
        lost = expired(rig)
        assert 1 <= lost <= 7
        wait(rig, learner, env_steps=(15 - lost) * ROWS, lost_steps=lost * STEPS)
    (alert,) = rig.alerts("expired-records")
    assert f"[0]: {lost} records were deleted" in alert.reason


def expired(rig):
    return int(rig.metrics_of("processor").get("expired_records", 0))


# ---- F30: a topic is deleted and made again


def committed(rig):
    group = group_name(rig.name, "processor")
    consumer = make_consumer(rig.settings, group=group, client_id="test")
    with closing(consumer):
        return committed_offsets(consumer, rig.topic(TRAJECTORIES), [0])[0]


def make_anew(rig, topic):
    delete_topics(rig.settings, [rig.topic(topic)])
    ensure_experiment_topics(rig.settings, rig.experiment)


@pytest.mark.parametrize("refilled", [3, 12], ids=["shorter", "longer"])
def test_trajectories_made_anew_are_read_from_their_start(rig, capsys, refilled):
    before = rig.start_worker(0)
    put_unrolls(rig, "w0", before, *range(6))
    with learning(rig) as learner:
        with processor(rig) as child:
            wait(rig, learner, env_steps=5 * ROWS)
            # Else it may be committed to the new topic, whose first 5 would be lost.
            wait_until(rig, lambda: committed(rig) == 5, "5 are committed", learner)
            make_anew(rig, TRAJECTORIES)
            after = rig.start_worker(0)
            put_unrolls(rig, "w0", after, *range(refilled))
            end_stream(rig, "w0", after)
            assert child.wait(120) == 70
        (alert,) = rig.alerts("another-log")
        assert "expected the topic id" in alert.reason
        with processor(rig):
            wait(rig, learner, env_steps=(5 + refilled) * ROWS, lost_steps=0)
            wait_until(
                rig,
                lambda: {g["lag"] for g in status_of(rig, capsys)[1]["groups"]} == {0},
                lambda: str(status_of(rig, capsys)[1]["groups"]),
            )
    assert len(rig.alerts("another-log")) == 1


def test_a_deleted_topic_ends_the_processor_with_the_reason(rig):
    put_unrolls(rig, "w0", rig.start_worker(0), *range(3))
    with processor(rig) as child, learning(rig) as learner:
        wait(rig, learner, env_steps=2 * ROWS)
        delete_topics(rig.settings, [rig.topic(TRAJECTORIES)])
        assert child.wait(120) == 70
    (alert,) = rig.alerts("another-log")
    assert "the topic is gone" in alert.reason


def test_a_replay_topic_made_anew_stops_the_learner_though_it_is_longer(rig):
    worker = rig.start_worker(0)
    rig.send("w0", worker, *range(4))
    learner = rig.start_thread()
    rig.wait_for(lambda: rig.committed().get(0) == 4, learner=learner)
    make_anew(rig, REPLAY)
    rig.send("w0", worker, *range(4, 20))
    with pytest.raises(LogMismatch):
        learner.result()
    assert rig.alerts("learner-stopped")


# ---- F27: partitions are added


def test_added_partitions_are_told_and_nothing_on_them_is_missed(rig, capsys):
    worker = rig.start_worker(0)
    put_unrolls(rig, "w0", worker, *range(4))
    with processor(rig) as child, learning(rig) as learner:
        wait(rig, learner, env_steps=3 * ROWS)
        add_partitions(rig, 4, TRAJECTORIES, REPLAY)
        for role in ("processor", "learner"):
            wait_until(
                rig,
                lambda role=role: role in partition_alerts(rig),
                f"the {role} tells",
                learner,
            )
        # Who hashes keys over all that the broker has writes to any of them.
        stray = make_unroll(rig, "w1", rig.start_worker(1), 0, end_of_stream=True)
        foreign = Sender(make_producer(rig.settings, client_id="foreign"))
        foreign.send_and_wait(rig.topic(TRAJECTORIES), encode(stray), "w1", 3)
        wait_until(rig, lambda: rig.letters(DEAD_LETTERS), "a dead letter", learner)
        (letter,) = rig.letters(DEAD_LETTERS)
        assert (letter.source.partition, letter.source.offset) == (3, 0)
        assert "expected one of the experiment's 2, found 3" in letter.error
        put_unrolls(rig, "w0", worker, *range(4, 8))
        wait(rig, learner, env_steps=7 * ROWS, lost_steps=0)
        code = dead_letters(
            rig.settings, rig.name, "reinject", [],
            all_letters=True, dry_run=False, as_json=True,
        )  # fmt: skip
        (outcome,) = json.loads(capsys.readouterr().out)
        assert (code, outcome["state"]) == (0, "reinjected")
        assert outcome["detail"].startswith(f"{rig.topic(TRAJECTORIES)}[1]@")
        wait(rig, learner, env_steps=8 * ROWS, lost_steps=0)
        assert child.poll() is None
    with pytest.raises(TopicDrift, match="partitions is 4, expected 2"):
        ensure_experiment_topics(rig.settings, rig.experiment)


# ---- A worker that gives up


def test_what_a_worker_gave_up_is_counted_though_no_record_shows_it(rig, capsys):
    with learning(rig) as learner, processor(rig), worker(rig) as child:
        wait_until(
            rig,
            lambda: rig.metrics_of("worker").get("unrolls", 0) > 3,
            "it works",
            learner,
        )
        # From now on the broker refuses what is a millisecond old: for good.
        changes = {
            "message.timestamp.type": "CreateTime",
            "message.timestamp.before.max.ms": "1",
        }
        alter_config(rig.settings, rig.topic(TRAJECTORIES), changes)
        assert child.wait(120) == 1
    last = [point for point in rig.points() if point.role == "worker"][-1]
    # It may have waited for the learner for long, and begun another stream since.
    delivered = sum(
        int(unroll.valid.array().sum())
        for unroll in unrolls(rig)
        if unroll.incarnation == last.incarnation
    )
    values = last.values
    assert values["env_steps"] == delivered
    lost = int(values["undelivered_steps"])
    assert lost > 0
    (alert,) = rig.alerts("undelivered-steps")
    assert alert.reason == f"gave up with {lost} steps not delivered"
    assert len(rig.alerts("worker-failed")) == 1
    code, found = status_of(rig, capsys)
    assert (code, found["summary"]["undelivered_steps"]) == (3, lost)


def unrolls(rig):
    for message in records(rig, TRAJECTORIES):
        record = decode(message.value, Unroll, StreamEnd)
        if isinstance(record, Unroll):
            yield record


def add_partitions(rig, total, *topics):
    wanted = [NewPartitions(rig.topic(topic), total) for topic in topics]
    admin = make_admin(rig.settings)  # kept until the answer is here
    for future in admin.create_partitions(wanted).values():
        future.result(60)


def partition_alerts(rig):
    return {alert.role for alert in rig.alerts("partitions-changed")}


@pytest.fixture
def rig(settings, cached_export):  # noqa: F811
    with closing(PipelineRig(settings, experiment())) as rig:
        yield rig
