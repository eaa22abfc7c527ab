"""Old readers of new writers, and the reverse, through a real topic of schemas."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from infra.control.members import ensure_shared_topics
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.foreign_schemas import learn_schema
from infra.kafka.reading import read_to_end
from infra.kafka.schema_registry import SchemaRegistry
from infra.settings import Settings
from schemas.codec import decode, encode
from schemas.compatibility import IncompatibleSchema
from schemas.errors import SchemaError, UnknownSchemaId
from schemas.records import DeadLetter, MetricsPoint, TransitionBatch
from schemas.registry import Registry, know, newest, schema_id
from schemas.topics import DEAD_LETTERS, REPLAY, SCHEMAS, topic_name
from tests.integration.processor_rig import PATIENT, Rig
from tests.integration.registry_rig import added, unique
from tests.unit.avro_pairs import definitions
from tests.unit.sample_records import SAMPLES
from tests.unit.test_codec import as_plain
from tests.unit.test_processor_oracle import make_end, make_unroll

pytestmark = pytest.mark.kafka

Change = Callable[[Any], None]
SAMPLE = {type(sample).__name__: sample for sample in SAMPLES}


@pytest.fixture(scope="module")
def sender(settings: Settings) -> Sender:
    ensure_shared_topics(settings)
    return Sender(make_producer(settings, client_id="foreign"))


def changed(name: str, change: Change) -> Any:
    """Return what a newer version of us could ship."""
    schema = json.loads(newest(name).text)
    change(schema)
    return schema


def add(*fields: dict[str, Any]) -> Change:
    return lambda schema: schema["fields"].extend(copy.deepcopy(fields))


def field(schema: Any, name: str) -> Any:
    (found,) = [each for each in schema["fields"] if each["name"] == name]
    return found


def on(name: str, /, **values: Any) -> Change:
    return lambda schema: field(schema, name).update(values)


def drop(name: str) -> Change:
    return lambda schema: schema["fields"].remove(field(schema, name))


def grow_encoding(schema: Any) -> None:
    definitions(schema)["Encoding"]["symbols"].append("BROTLI")


def move_the_first(schema: Any) -> None:
    schema["fields"].append(schema["fields"].pop(0))


def add_to_tensor(schema: Any) -> None:
    definitions(schema)["Tensor"]["fields"].append(added("checksum", "bytes", "\xff"))


def both(*changes: Change) -> Change:
    def change(schema: Any) -> None:
        for each in changes:
            each(schema)

    return change


def write(schema: Any, values: dict[str, Any]) -> bytes:
    """Write as a foreign producer does: no code of ours."""
    out = io.BytesIO()
    out.write(struct.pack(">BI", 0, schema_id(schema)))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), values)
    return out.getvalue()


def through(settings: Settings, sender: Sender, topic: str, value: bytes) -> bytes:
    offset = sender.send_and_wait(topic, value, "w0")
    (message,) = read_to_end(settings, topic, start=offset)
    return message.value


END_REASON = {
    "type": "enum", "name": "EndReason", "symbols": ["STOPPED", "LOST"],
    "default": "STOPPED",
}  # fmt: skip

# What is changed; what a newer reader makes of an old record, beside its values.
COMPATIBLE: list[tuple[str, Change, dict[str, Any]]] = [
    ("Unroll", add(added("sky", "string", "clear")), {"sky": "clear"}),
    ("Unroll", add(added("raw", "bytes", "\u00ff")), {"raw": b"\xff"}),
    ("Unroll", add(added("extra", ["null", "Tensor"], None)), {"extra": None}),
    ("Unroll", move_the_first, {}),
    ("Member", add(added("end_reason", END_REASON, "LOST")), {"end_reason": "LOST"}),
    ("TransitionBatch", add(added("weights", ["null", "Tensor"], None)), {
        "weights": None}),
    ("DeadLetter", both(
        on("error", doc="why"),
        add(added("attempts", "int", 3))), {"attempts": 3}),
    ("StreamEnd", both(
        on("produced_at_ms", type={"type": "long", "logicalType": "timestamp-millis"}),
        add(added("zone", "string", "UTC"))), {"zone": "UTC"}),
    ("MetricsPoint", add(added("share", ["float", "double"], 0.5)), {"share": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "more"), COMPATIBLE, ids=lambda value: str(value)[:30]
)
def test_what_is_compatible_is_read_both_ways(
    settings: Settings,
    sender: Sender,
    topic: str,
    name: str,
    change: Change,
    more: dict[str, Any],
) -> None:
    newer, sample = changed(name, change), SAMPLE[name]
    text = json.dumps(newer)
    registry = SchemaRegistry(settings)
    subject = unique()
    registry.register(subject, newest(name).text)
    assert registry.register(subject, text).version == 2
    # Today's reader, tomorrow's writer.
    values = {**as_plain(sample), **more}
    value = through(settings, sender, topic, write(newer, values))
    ours = Registry()
    with pytest.raises(UnknownSchemaId):
        decode(value, type(sample), registry=ours)
    assert learn_schema(settings, ours, schema_id(newer))
    assert decode(value, type(sample), registry=ours) == sample
    # Tomorrow's reader, today's writer.
    old = through(settings, sender, topic, encode(sample))
    found = fastavro.schemaless_reader(
        io.BytesIO(old[5:]), newest(name).parsed, know(text, 2).parsed
    )
    if name == "StreamEnd":  # a newer reader may make a time of it
        found["produced_at_ms"] = sample.produced_at_ms  # type: ignore[index]
    assert found == {**as_plain(sample), **more}


EQUAL = "equal"
# What is changed; the field that a refusal names, or that it is accepted; values that a
# foreign producer writes all the same; what today's reader makes of them.
INCOMPATIBLE: list[tuple[str, Change, str | None, dict[str, Any], str]] = [
    ("StreamEnd", add({"name": "why", "type": "int"}), "/why: expected a default",
     {"why": 1}, EQUAL),
    ("StreamEnd", on("reason", name="cause"), "/cause: expected a default",
     {"cause": "x"}, "No default value for field reason"),
    ("StreamEnd", on("incarnation", type="int"),
     "/incarnation: expected what reads long, found int", {"incarnation": 8}, EQUAL),
    ("StreamEnd", on("reason", type="long"),
     "/reason: expected what reads string, found long", {"reason": 5}, "mismatch"),
    ("StreamEnd", lambda schema: schema.update(name="Ending"),
     "expected what reads record rollstream.StreamEnd", {}, "found Ending"),
    ("EpisodesFinished", grow_encoding,
     "/encoding: expected no symbols beyond RAW, ZSTD", {}, EQUAL),
    ("EpisodesFinished", grow_encoding,
     "found BROTLI", {"envs": {"encoding": "BROTLI"}}, "BROTLI not found"),
    # BACKWARD: accepted, as newer readers go first; older ones do not guess.
    ("StreamEnd", both(drop("reason"), add(added("u1"))), None, {},
     "No default value for field reason"),
    ("Event", both(on("index", type="long"), add(added("u2"))), None,
     {"index": 2**40}, "mismatch"),
    ("StreamEnd", both(on("reason", type="bytes"), add(added("u3"))), None,
     {"reason": b"\xff"}, "invalid start byte"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "refused", "values", "outcome"), INCOMPATIBLE
)
def test_what_is_not_is_refused_and_never_misread(
    settings: Settings,
    sender: Sender,
    topic: str,
    name: str,
    change: Change,
    refused: str | None,
    values: dict[str, Any],
    outcome: str,
) -> None:
    newer, sample = changed(name, change), SAMPLE[name]
    registry, subject = SchemaRegistry(settings), unique()
    registry.register(subject, newest(name).text)
    if refused is None:
        registry.register(subject, json.dumps(newer))
    else:
        with pytest.raises(IncompatibleSchema) as error:
            registry.register(subject, json.dumps(newer))
        assert f"{subject} version 1: " in str(error.value)
        assert refused in str(error.value)
        # Somebody writes it to the topic without asking, and records with it.
        sender.send_and_wait(topic_name(SCHEMAS), json.dumps(newer).encode(), "foreign")
    plain = as_plain(sample)
    for key, value in values.items():
        nested = isinstance(value, dict)
        plain[key] = {**plain[key], **value} if nested else value
    data = through(settings, sender, topic, write(newer, {"u1": 0, **plain}))
    ours = Registry()
    assert learn_schema(settings, ours, schema_id(newer))
    if outcome == EQUAL:
        assert decode(data, type(sample), registry=ours) == sample
        return
    with pytest.raises(SchemaError, match=outcome) as unreadable:
        decode(data, type(sample), registry=ours)
    assert not isinstance(unreadable.value, UnknownSchemaId)


def with_checksums(value: Any, checksum: bytes) -> Any:
    if not isinstance(value, dict):
        return value
    found = {key: with_checksums(item, checksum) for key, item in value.items()}
    return {**found, "checksum": checksum} if "encoding" in value else found


def test_a_field_within_every_tensor_is_passed_over_and_made_up(
    settings: Settings, sender: Sender, topic: str
) -> None:
    newer, sample = changed("Unroll", add_to_tensor), SAMPLE["Unroll"]
    text = json.dumps(newer)
    SchemaRegistry(settings).register(unique(), text)
    plain = as_plain(sample)
    data = write(newer, with_checksums(plain, b"new"))
    ours = Registry()
    assert learn_schema(settings, ours, schema_id(newer))
    data = through(settings, sender, topic, data)
    assert decode(data, type(sample), registry=ours) == sample
    found = fastavro.schemaless_reader(
        io.BytesIO(encode(sample)[5:]), newest("Unroll").parsed, know(text, 2).parsed
    )
    assert found == with_checksums(plain, b"\xff")


def test_numbers_keep_every_bit(settings: Settings, sender: Sender, topic: str) -> None:
    newer = changed("MetricsPoint", add(added("note", "string", "")))
    SchemaRegistry(settings).register(unique(), json.dumps(newer))
    bits = [0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 1]
    numbers = [struct.unpack("<d", struct.pack("<Q", each))[0] for each in bits]
    sample = dataclasses.replace(
        SAMPLE["MetricsPoint"],
        values={str(index): number for index, number in enumerate(numbers)},
    )
    data = write(newer, {**as_plain(sample), "note": "n"})
    data = through(settings, sender, topic, data)
    ours = Registry()
    assert learn_schema(settings, ours, schema_id(newer))
    found = decode(data, MetricsPoint, registry=ours)
    packed = [
        struct.unpack("<Q", struct.pack("<d", v))[0] for v in found.values.values()
    ]
    assert packed == bits


def test_a_processor_buries_what_it_cannot_read_and_goes_on(
    settings: Settings, tmp_path: Path
) -> None:
    newer = changed("Unroll", on("rewards", name="rewards_scaled"))
    with Rig(settings, tmp_path, partitions=1, prelude=PATIENT) as rig:
        rig.sender.send_and_wait(
            topic_name(SCHEMAS), json.dumps(newer).encode(), "foreign"
        )
        values = as_plain(make_unroll([[1.0]]))
        values["rewards_scaled"] = values.pop("rewards")
        rig.put(make_unroll([[1.0]]))
        rig.put_raw(write(newer, values))
        rig.put(make_unroll([[2.0]], sequence=1, first_step=1))
        rig.put(make_end())
        rig.start()
        rig.wait_until_all_committed()
        (letter,) = [decode(m.value, DeadLetter) for m in rig.messages(DEAD_LETTERS)]
        assert letter.source.offset == 1
        assert "No default value for field rewards" in letter.error
        batches = [decode(m.value, TransitionBatch) for m in rig.messages(REPLAY)]
        assert [batch.sequence for batch in batches] == [0, 1]
