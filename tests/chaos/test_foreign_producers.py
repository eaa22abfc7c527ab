"""Producers that are not ours, and their transactions, on our topics."""

import json

import pytest

from infra.kafka import open_transactions
from infra.kafka.clients import make_producer
from infra.kafka.dead_letters import dead_letter, read_letters
from rollstream.peek_command import peek
from rollstream.status_command import status
from schemas.codec import encode
from schemas.records import DeadLetter, SourceRef, StreamEnd
from schemas.topics import DEAD_LETTERS, EVENTS, REPLAY, TRAJECTORIES
from tests.integration.learner_rig import (  # noqa: F401
    cached_export,
    experiment,
    make_batch,
)
from tests.integration.pipeline_rig import (
    ROWS,
    PipelineRig,
    make_unroll,
    processor,
    put,
    put_unrolls,
    records,
    wait,
    wait_until,
)
from tests.integration.processor_rig import PATIENT

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

# Told after seconds: that nothing of ours stays open for longer is another matter.
WAIT_S = 2.0
SOON = f"import infra.kafka.open_transactions as told\ntold.WAIT_S = {WAIT_S}\n"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def begin(rig, *records, **overrides):
    """Write (topic, partition, value)s in a transaction that stays open."""
    producer = make_producer(
        rig.settings,
        client_id="foreign",
        overrides={
            "transactional.id": f"{rig.name}-foreign",
            "message.timeout.ms": 60_000,
            # It stays open for as long as a test needs.
            "transaction.timeout.ms": 600_000,
            **overrides,
        },
    )
    producer.init_transactions(60.0)
    producer.begin_transaction()
    for topic, partition, value in records:
        producer.produce(rig.topic(topic), value, "w9", partition)
    assert producer.flush(60.0) == 0
    return producer


@pytest.mark.parametrize("role", ["processor", "learner"])
def test_an_open_transaction_is_told_and_nothing_behind_it_is_skipped(
    rig, capsys, monkeypatch, role
):
    monkeypatch.setattr(open_transactions, "WAIT_S", WAIT_S)
    worker = rig.start_worker(0)
    topic = TRAJECTORIES if role == "processor" else REPLAY
    put_unrolls(rig, "w0", worker, *range(4))
    with processor(rig, PATIENT + SOON) as child:
        learner = rig.start_thread()
        wait(rig, learner, env_steps=3 * ROWS)
        foreign = begin(rig, (topic, 0, b"nothing of ours"))
        put_unrolls(rig, "w0", worker, *range(4, 10))
        put(rig, StreamEnd(rig.name, rig.run_id, "w0", worker, "done", 0))
        wait_until(
            rig,
            lambda: [a for a in rig.alerts("open-transaction") if a.role == role],
            "it says that it waits",
            learner,
        )
        (alert,) = rig.alerts("open-transaction")
        assert f"{rig.topic(topic)}[0]: nothing from offset" in alert.reason
        assert rig.metrics()["env_steps"] == 3 * ROWS
        assert status(rig.settings, rig.name, as_json=False) == 3
        said = capsys.readouterr().out
        assert f"{role}: an open transaction holds back records of [0]" in said
        foreign.abort_transaction(60.0)
        wait(rig, learner, env_steps=10 * ROWS, lost_steps=0, duplicate_steps=0)
        assert child.poll() is None
        assert learner.stop() == 0
    assert not rig.letters(DEAD_LETTERS)


def test_nothing_that_was_aborted_is_seen_whatever_its_codec(rig, capsys):
    worker, other = rig.start_worker(0), rig.start_worker(1)
    letter = encode(
        DeadLetter(
            rig.name, SourceRef(rig.topic(TRAJECTORIES), 0, 0), "r", "e", b"", b"", 0, 0
        )
    )
    with processor(rig, PATIENT) as child:
        learner = rig.start_thread()
        for sequence, codec in enumerate(CODECS):
            put_unrolls(rig, "w0", worker, sequence)
            # Of a stream that would be learnt from, were it not taken back.
            foreign = begin(
                rig,
                (TRAJECTORIES, 0, encode(make_unroll(rig, "w0", worker, 90))),
                (REPLAY, 0, encode(a_batch(rig, "w1", other, sequence))),
                (REPLAY, 1, encode(a_batch(rig, "w1", other, sequence))),
                (DEAD_LETTERS, 0, letter),
                (EVENTS, 0, b"nothing of ours"),
                **{"compression.type": codec},
            )
            foreign.abort_transaction(60.0)
        put_unrolls(rig, "w0", worker, len(CODECS))
        put(rig, StreamEnd(rig.name, rig.run_id, "w0", worker, "done", 0))
        total = (len(CODECS) + 1) * ROWS
        wait(rig, learner, env_steps=total, lost_steps=0, duplicate_steps=0)
        wait_until(
            rig,
            lambda: rig.metrics_of("processor").get("unrolls") == len(CODECS) + 1,
            lambda: f"the processor tells of all: {rig.metrics_of('processor')}",
            learner,
        )
        assert child.poll() is None
        assert learner.stop() == 0
    assert rig.metrics_of("processor")["dead_letters"] == 0
    assert read_letters(rig.settings, rig.name) == []
    assert len(list(records(rig, REPLAY))) == len(CODECS) + 1
    peek(rig.settings, rig.topic(TRAJECTORIES), "0", 99, partition=0, as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    sequences = [line.get("sequence") for line in lines]
    assert sequences == [*range(len(CODECS) + 1), None]
    # What is behind the last abort is no lag: there is no record there.
    dead_letter(
        rig.sender, rig.context("processor"),
        SourceRef(rig.topic(TRAJECTORIES), 0, 5), b"w0", b"bad", "a real one",
    )  # fmt: skip
    assert rig.sender.flush(60) == 0
    assert [each.record.error for each in read_letters(rig.settings, rig.name)] == [
        "a real one"
    ]


def a_batch(rig, worker, incarnation, sequence):
    return make_batch(rig.name, rig.run_id, worker, incarnation, sequence)


@pytest.fixture
def rig(settings, cached_export):  # noqa: F811
    rig = PipelineRig(settings, experiment())
    yield rig
    rig.close()
