"""Records that a processor must not trip over, on a real broker."""

from __future__ import annotations

import dataclasses
import json
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from infra.cluster.service import choose_port
from infra.control.role import EXIT_ERROR, EXIT_OK
from infra.kafka.clients import make_admin, producer_config
from infra.kafka.offsets import delete_before
from infra.settings import Settings
from schemas.codec import decode, decode_any, encode
from schemas.records import (
    DeadLetter,
    Event,
    Member,
    MetricsPoint,
    SourceRef,
    TransitionBatch,
)
from schemas.registry import newest, schema_id
from schemas.topics import (
    DEAD_LETTERS,
    EVENTS,
    MEMBERS,
    METRICS,
    REPLAY,
    SCHEMAS,
    TRAJECTORIES,
    topic_name,
)
from tests.integration.processor_rig import PATIENT, Rig, terminate, wait_until
from tests.integration.topic_limits import limit
from tests.unit.test_processor_oracle import make_end, make_unroll

pytestmark = pytest.mark.kafka


@pytest.fixture
def rig(settings: Settings, tmp_path: Path) -> Iterator[Rig]:
    with Rig(settings, tmp_path, partitions=1, prelude=PATIENT) as rig:
        yield rig


def unroll_at(sequence: int, num_envs: int = 1, **options: object):  # type: ignore[no-untyped-def]
    return make_unroll(
        [[float(sequence)] * num_envs],
        sequence=sequence,
        first_step=sequence,
        **options,  # type: ignore[arg-type]
    )


def abort_one(rig: Rig) -> None:
    """Write an unroll that a transaction takes back."""
    producer = Producer(
        {
            **producer_config(rig.settings, "foreign"),
            "transactional.id": rig.name,
            "message.timeout.ms": 60_000,
            "compression.type": "zstd",
        }
    )
    rig.flush()
    end = rig.end()
    producer.init_transactions(60.0)
    producer.begin_transaction()
    producer.produce(rig.source, encode(unroll_at(0, worker="w9")), "w9", 0)
    assert producer.flush(60.0) == 0
    producer.abort_transaction(60.0)
    # The broker writes the transaction's mark after it has answered.
    wait_until(lambda: rig.end() == end + 2, 60.0, "a record and a mark")


def poison(rig: Rig) -> list[bytes | None]:
    good = encode(unroll_at(0))
    bomb = good[:5] + b"\xfe\xff\xff\xff\x7f"  # a string of two billion bytes
    items = encode(make_end())[:5] + b"\xc0\x84\x3d" * 7_000
    dead = encode(DeadLetter("e", SourceRef("t", 0, 0), "r", "e", b"", b"", 0, 0))
    return [
        None,
        b"",
        b"\x00",
        good[: len(good) // 2],  # truncated
        good + b"\x00",  # more than a record
        b"\x07" + good[1:],  # wrong magic
        b"\x80random\xff" * 20,
        bomb,
        items,
        dead,  # well formed, of another kind
        encode(
            dataclasses.replace(
                unroll_at(0),
                rewards=dataclasses.replace(unroll_at(0).rewards, shape=(9,)),
            )
        ),
        encode(make_unroll([[float("nan")]])),  # on a row that claims to be valid
        encode(make_unroll([[1.0]], worker="")),  # its batch would have no key
    ]


def test_poison_becomes_dead_letters_and_good_records_are_processed(rig: Rig) -> None:
    abort_one(rig)  # leaves a hole right after offset 0
    sequence = 0
    port = choose_port()
    child = rig.start(ROLLSTREAM_METRICS_PORT=str(port))
    for value in poison(rig):
        for _ in range(25):  # 4 % are bad
            rig.put(unroll_at(sequence))
            sequence += 1
        rig.put_raw(value)
    abort_one(rig)
    rig.put(make_end())
    rig.wait_until_all_committed()
    letters = [decode(m.value, DeadLetter) for m in rig.messages(DEAD_LETTERS)]
    bad_offsets = [m.offset for m in rig.messages(TRAJECTORIES) if m.key == "poison"]
    assert len(bad_offsets) == len(poison(rig))
    assert [letter.source.offset for letter in letters] == bad_offsets
    assert {letter.source.topic for letter in letters} == {rig.source}
    assert all(letter.error and letter.key == b"poison" for letter in letters)
    batches = [decode(m.value, TransitionBatch) for m in rig.messages(REPLAY)]
    assert [batch.sequence for batch in batches] == list(range(sequence))
    assert {batch.worker for batch in batches} == {"w0"}  # nothing that was aborted
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        scraped = page.read().decode()
    assert f"rollstream_processor_dead_letters_total {len(letters)}.0" in scraped
    wait_until(lambda: is_all_told(rig), 60.0, "its metrics are of all")
    assert child.poll() is None
    assert terminate(child) == EXIT_OK
    _check_reports(rig, sequence, len(letters))


def last_point(rig: Rig) -> MetricsPoint | None:
    points = [decode_any(m.value) for m in rig.messages(METRICS)]
    return next((p for p in reversed(points) if isinstance(p, MetricsPoint)), None)


def is_all_told(rig: Rig) -> bool:
    """Whether the newest metrics are of when all was acknowledged."""
    last, end = last_point(rig), rig.end()
    return last is not None and [each.committed for each in last.positions] == [end]


def _check_reports(rig: Rig, unrolls: int, dead_letters: int) -> None:
    last = last_point(rig)
    assert last is not None
    assert last.values["batches"] == last.values["env_steps"] == unrolls
    assert last.values["dead_letters"] == dead_letters
    (position,) = last.positions
    assert position.topic == rig.source and position.held == 0
    assert position.position == position.committed
    (member,) = [decode(m.value, Member) for m in rig.messages(MEMBERS)]
    assert (member.role, member.index, member.run_id) == ("processor", 0, "run1")


def test_more_than_5_percent_bad_records_stop_the_process(rig: Rig) -> None:
    for sequence in range(100):
        rig.put(unroll_at(sequence))
    for _ in range(6):
        rig.put_raw(b"garbage")
    rig.flush()
    child = rig.start()
    assert child.wait(120.0) == EXIT_ERROR
    events = [decode(m.value, Event) for m in rig.messages(EVENTS)]
    assert [event.kind for event in events] == ["too-many-bad-records"]
    assert sum(1 for _ in rig.messages(DEAD_LETTERS)) == 6


def test_a_batch_refused_for_its_size_is_a_dead_letter_and_not_a_crash_loop(
    rig: Rig,
) -> None:
    limit(rig.settings, rig.topic(REPLAY), 20_000)
    rig.put(unroll_at(0))
    rig.put(unroll_at(0, num_envs=1_000, worker="w1", end=True))
    rig.put(unroll_at(1, end=True))
    child = rig.start()
    rig.wait_until_all_committed()
    assert child.poll() is None
    (letter,) = [decode(m.value, DeadLetter) for m in rig.messages(DEAD_LETTERS)]
    assert letter.source.offset == 1 and "refused for its size" in letter.error
    assert [m.key for m in rig.messages(REPLAY)] == ["w0", "w0"]


def test_a_record_of_a_newer_schema_waits_for_it(rig: Rig) -> None:
    schema = json.loads(newest("Unroll").text)
    # Of this run alone: no other has left it in the topic that all share.
    name = f"weather_{uuid.uuid4().hex}"
    schema["fields"].append({"name": name, "type": "string", "default": "fair"})
    new = encode(unroll_at(0, end=True))
    value = b"\x00" + schema_id(schema).to_bytes(4, "big") + new[5:] + b"\x08rain"
    rig.put_raw(value)
    rig.flush()
    rig.start()
    wait_until(lambda: "waiting for a schema" in rig.log(), 90.0, "it waits")
    assert rig.committed() == {0: 0}
    assert list(rig.messages(DEAD_LETTERS)) == []
    rig.sender.send(
        topic_name(SCHEMAS), json.dumps(schema).encode(), str(schema_id(schema))
    )
    rig.wait_until_all_committed()
    (message,) = rig.messages(REPLAY)
    assert decode(message.value, TransitionBatch).num_steps == 1
    assert list(rig.messages(DEAD_LETTERS)) == []


def test_records_that_expired_unread_are_counted_and_told(
    settings: Settings, tmp_path: Path
) -> None:
    with Rig(settings, tmp_path, 1, PATIENT, learner={"onExpired": "fail"}) as rig:
        for sequence in range(8):
            rig.put(unroll_at(sequence, end=True))
        rig.flush()
        rig.commit(0, 1)
        admin = make_admin(settings)
        (future,) = delete_before(admin, {(rig.source, 0): 5}, 60.0).values()
        future.result(60.0)
        assert rig.start().wait(120.0) == EXIT_ERROR
        assert rig.committed() == {0: 1}
        rig.publish(learner={"onExpired": "earliest"})
        rig.start()
        rig.wait_until_all_committed()
        events = [decode(m.value, Event) for m in rig.messages(EVENTS)]
        told = [(event.kind, event.severity) for event in events]
        assert told == [("expired-records", "alert")] * 2
        assert all("4 records" in event.reason for event in events)
