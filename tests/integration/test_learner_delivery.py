"""What a learner trains on: each step once, whatever the log holds."""

import contextlib
import dataclasses
import io
import json
import secrets
import struct

import fastavro
import numpy as np
import pytest

from infra.kafka.topic_admin import delete_topics
from learner import feed
from learner.log_start import LogMismatch
from learner.roster import NewerLearner
from schemas.codec import encode
from schemas.errors import UnknownSchemaId
from schemas.records import EnvDescription
from schemas.registry import newest, schema_id
from schemas.tensors import pack
from schemas.topics import REPLAY, SCHEMAS, topic_name
from tests.integration.learner_rig import (  # noqa: F401
    ENV,
    Rig,
    cached_export,
    experiment,
    make_batch,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

ROWS = 8 * 8 - 1  # of a batch; one of its 64 is not valid


def test_each_step_is_taken_once_and_what_is_missing_is_counted(rig):
    first, second = rig.start_worker(0), rig.start_worker(1)
    rig.send("w0", first, 0, 1, 2, 1, 2)  # a processor that read 1 and 2 again
    rig.send("w1", second, 0, 3, 4)  # 1 and 2 are missing
    foreign = make_batch(rig.name, "another-run", "w1", second, 9)
    rig.send_bytes(encode(foreign), "w1")
    rig.flush()
    learner = rig.start_thread()
    rig.wait_for(rig.is_all_told, learner=learner)
    values = rig.metrics()
    assert values["lost_steps"] == 2 * 64
    assert values["duplicate_steps"] == 2 * ROWS
    assert values["foreign_batches"] == 1
    assert values["dropped_rows"] == 0  # those before the hole may still be learnt from
    assert values["env_steps"] == 6 * ROWS == rig.unique_rows
    # In another topic than the metrics: it may be there a little later.
    (reason,) = rig.wait_for(lambda: rig.events("lost-steps"), learner=learner)
    assert "w1" in reason and "sequences 1 to 2, steps 8 to 23 are missing" in reason

    rig.send("w1", second, 2, 1, 2)  # both are found, one of them twice
    rig.wait_for(rig.is_all_told, learner=learner)
    values = rig.metrics()
    assert values["duplicate_steps"] == 3 * ROWS
    assert (values["lost_steps"], values["recovered_steps"]) == (0, 2 * 64)
    assert values["env_steps"] == 8 * ROWS == rig.unique_rows
    assert learner.stop() == 0


def test_bad_records_become_dead_letters_and_good_ones_go_on(rig):
    incarnation = rig.start_worker()
    good = make_batch(rig.name, rig.run_id, "w0", incarnation, 90)
    poison = [
        b"",
        b"\x01",
        encode(good)[:-100],
        b"\x07" + encode(good)[1:],
        # Well-formed, but of another environment.
        encode(
            dataclasses.replace(
                good, observations={"": pack(good.observations[""].array()[..., :3])}
            )
        ),
        # An action that there is not, a worker that there is not, and a step so far
        # ahead that no credit could be granted for the next one.
        encode(
            make_batch(
                rig.name,
                rig.run_id,
                "w0",
                incarnation,
                91,
                actions={"": pack(np.full((8, 8), 2, "<i8"))},
            )
        ),
        encode(dataclasses.replace(good, worker="")),
        encode(dataclasses.replace(good, first_step=2**63 - 9)),
    ]
    rig.send("w0", incarnation, *range(4))
    for value in poison:
        rig.send_bytes(value)
    rig.send("w0", incarnation, *range(4, 8))
    rig.run_until(lambda: rig.metrics().get("env_steps") == 8 * ROWS)
    letters = rig.dead_letters()
    assert [letter.source.offset for letter in letters] == list(range(4, 12))
    assert letters[2].value == poison[2]
    assert rig.metrics()["dead_letters"] == 8
    # Committed, so that nobody reads them again.
    assert rig.committed()[0] == 16


def test_many_bad_records_stop_the_learner_with_the_reason(rig):
    rig.start_worker()
    for _ in range(20):
        rig.send_bytes(b"\x07garbage")
    rig.flush()
    with pytest.raises(Exception, match="20 of the last 20 records cannot be read"):
        rig.start_thread().result()
    assert "cannot be read" in rig.events("learner-stopped")[0]


def test_a_schema_of_a_newer_writer_is_waited_for(rig, monkeypatch):
    monkeypatch.setattr(feed, "SCHEMA_WAIT_S", 300.0)  # however busy the machine is
    schema = json.loads(newest("TransitionBatch").text)
    # The topic of schemas is everybody's, and what was published there stays.
    colour = f"colour_{secrets.token_hex(4)}"
    schema["fields"].append({"name": colour, "type": "string", "default": "red"})
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, 0)
    newer = make_batch(rig.name, rig.run_id, "w0", incarnation, 1)
    body = io.BytesIO()
    values = dataclasses.asdict(newer) | {colour: "blue"}
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), values)
    header = struct.pack(">BI", 0, schema_id(schema))
    rig.send_bytes(header + body.getvalue())
    rig.send("w0", incarnation, 2)
    learner = rig.start_thread()
    rig.wait_for(lambda: rig.events("unknown-schema"), learner=learner)
    rig.wait_for(lambda: rig.metrics().get("env_steps") == ROWS, learner=learner)
    rig.sender.send(topic_name(SCHEMAS), json.dumps(schema).encode(), "newer")
    rig.wait_for(lambda: rig.metrics()["env_steps"] == 3 * ROWS, learner=learner)
    assert rig.metrics()["dead_letters"] == rig.metrics()["lost_steps"] == 0
    assert learner.stop() == 0


def test_a_schema_that_nobody_knows_stops_it_and_is_no_dead_letter(rig, monkeypatch):
    monkeypatch.setattr(feed, "SCHEMA_WAIT_S", 1.0)
    rig.send("w0", rig.start_worker(), 0)
    rig.send_bytes(b"\x00\x12\x34\x56\x78good, perhaps")
    rig.flush()
    with pytest.raises(UnknownSchemaId, match=str(0x12345678)):
        rig.start_thread().result()
    assert rig.dead_letters() == []
    assert rig.committed().get(0, 0) <= 1


def test_a_newer_learner_stops_the_older_one(rig):
    rig.send("w0", rig.start_worker(), *range(8))
    older = rig.start_thread()
    rig.wait_for(lambda: rig.metrics().get("env_steps"), learner=older)
    newer = rig.start_thread()
    with pytest.raises(NewerLearner, match="has started"):
        older.result()
    rig.wait_for(lambda: len({c.epoch for c in rig.credits()}) == 2, learner=newer)
    assert rig.credits()[-1].epoch == max(c.epoch for c in rig.credits())
    assert newer.stop() == 0


def test_workers_are_granted_credit_by_their_incarnation(rig):
    first = rig.start_worker(0)
    learner = rig.start_thread()
    granted = rig.wait_for(lambda: rig.credits(), learner=learner)
    # n = 3, T = 8: a floor window of 2 unrolls, before any batch has come.
    assert _allowed(granted) == {"w0": (first, 16)}
    rig.send("w0", first, 0, 1)
    rig.wait_for(lambda: _allowed(rig.credits())["w0"][1] >= 32, learner=learner)
    # It is killed and starts again.
    again = rig.start_worker(0)
    rig.wait_for(lambda: _allowed(rig.credits())["w0"] == (again, 16), learner=learner)
    assert learner.stop() == 0


def test_credit_stops_where_the_buffer_is_ahead(rig):
    """Without samples the limiter takes min_size + 2 unrolls of 2 workers, no more."""
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(40))
    learner = rig.start_thread()
    rig.wait_for(lambda: rig.metrics().get("env_steps"), learner=learner)
    most = 128 + 2 * 2 * 64
    before = [p.values for p in rig.points() if p.values.get("updates") == 0]
    assert before and all(values["env_steps"] <= most for values in before)
    # With the graph come the updates, and the rest is taken.
    rig.wait_for(lambda: rig.metrics()["env_steps"] == 40 * ROWS, learner=learner)
    assert learner.stop() == 0


def test_workers_of_other_spaces_are_told_of(rig):
    rig.start_worker(0)
    other = EnvDescription(
        "CartPole-v1", ENV.observation, (), 500, "sync", {"gymnasium": "1.4.0"}
    )
    rig.start_worker(1, other)
    learner = rig.start_thread()
    rig.wait_for(lambda: rig.events("worker-spaces-differ"), learner=learner)
    assert learner.stop() == 0


def test_a_topic_that_is_gone_stops_the_learner(rig):
    rig.send("w0", rig.start_worker(), *range(4))
    learner = rig.start_thread()
    rig.wait_for(lambda: rig.committed(), learner=learner)
    delete_topics(rig.settings, [rig.topic(REPLAY)])
    with pytest.raises(LogMismatch):
        learner.result()


def _allowed(credits):
    return {
        worker: (credit.incarnation, credit.allowed_step)
        for worker, credit in credits[-1].allowed.items()
    }


@pytest.fixture
def rig(settings, cached_export):  # noqa: F811
    with contextlib.closing(Rig(settings, experiment())) as rig:
        yield rig
