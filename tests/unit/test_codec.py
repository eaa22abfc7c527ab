import dataclasses
import io
import json
import re
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files

import fastavro
import numpy as np
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from schemas import records
from schemas.bounds import compile_scan
from schemas.codec import decode, decode_any, encode, writer_schema
from schemas.encodings import to_wire
from schemas.errors import SchemaError, UnknownSchemaId
from schemas.records import StreamEnd, TransitionBatch, Unroll
from schemas.registry import Registry, know, newest, schema_id, shipped
from schemas.tensors import Tensor, pack
from tests.unit.sample_records import ENVS, SAMPLES, STEPS, batch, unroll

NAMES = sorted({type(sample).__name__ for sample in SAMPLES})
by_name = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: type(s).__name__)


class StandInRegistry(BaseHTTPRequestHandler):
    """The one call of the Schema Registry that a deserializer needs."""

    def do_GET(self):
        match = re.match(r"/schemas/ids/(\d+)", self.path)
        known = match and Registry().by_id(int(match[1]))
        body = {"schema": known.text} if known else {"error_code": 404, "message": ""}
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def registry_client():
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandInRegistry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with SchemaRegistryClient({"url": f"http://127.0.0.1:{server.server_port}"}) as it:
        yield it
    server.shutdown()
    thread.join()
    server.server_close()


@by_name
def test_records_come_back_equal(sample):
    assert decode(encode(sample), type(sample)) == sample
    assert decode_any(encode(sample)) == sample


@by_name
def test_confluent_deserializer_reads_our_records(sample, registry_client):
    deserialize = AvroDeserializer(registry_client)
    found = deserialize(encode(sample), SerializationContext("t", MessageField.VALUE))
    assert found == as_plain(sample)


@by_name
def test_plain_fastavro_reads_our_records_with_the_shipped_file(sample):
    known = newest(type(sample).__name__)
    name = f"{known.name}.v{known.version}.avsc"
    schema = json.loads(files("schemas").joinpath("avro", name).read_text())
    body = io.BytesIO(encode(sample)[5:])
    assert fastavro.schemaless_reader(body, schema, None) == as_plain(sample)


def as_plain(value, has_codec=False):
    if isinstance(value, Tensor):
        encoding, codec = to_wire(value.encoding)
        named = {"encoding": encoding, **({"codec": codec} if has_codec else {})}
        plain = {"dtype": value.dtype, "shape": list(value.shape), **named}
        return {**plain, "data": value.data}
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        has_codec = isinstance(value, Unroll | TransitionBatch)
        return {name: as_plain(getattr(value, name), has_codec) for name in names}
    if isinstance(value, dict):
        return {key: as_plain(item, has_codec) for key, item in value.items()}
    if isinstance(value, tuple):
        return [as_plain(item) for item in value]
    return value


def test_every_record_has_a_sample_and_a_schema_with_its_fields():
    assert NAMES == sorted({schema.name for schema in shipped()})
    for name in NAMES:
        fields = [field["name"] for field in newest(name).parsed["fields"]]
        declared = dataclasses.fields(getattr(records, name))
        assert fields == [field.name for field in declared]


def test_an_id_is_the_little_endian_fingerprint():
    # CRC-64-AVRO of "int" is 7275d51a3f395c8f (the specification's own example,
    # most significant byte first); read as a little-endian number its four lowest
    # bytes are 8f5c393f, backwards.
    number = schema_id("int")
    assert number == int.from_bytes(bytes.fromhex("7275d51a3f395c8f"), "big") & (
        0x7FFFFFFF
    )
    assert number == 0x3F395C8F


def test_ids_of_what_shipped_never_change():
    golden = json.loads(files("tests").joinpath("unit", "schema_ids.json").read_text())
    assert {f"{s.name}.v{s.version}": s.id for s in shipped()} == golden
    assert len(set(golden.values())) == len(golden)


def test_a_long_array_may_not_ask_for_more_than_it_holds():
    scan = compile_scan(
        fastavro.parse_schema(
            {
                "type": "record",
                "name": "Bomb",
                "fields": [{"name": "many", "type": {"type": "array", "items": "int"}}],
            }
        )
    )
    hundred_million = b"\x80\x84\xaf\x5f"
    with pytest.raises(SchemaError, match="at most 65536 items, found 100000000"):
        scan(hundred_million + b"\x00", 0)


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "Nothing", "size": 0},
        {
            "type": "record",
            "name": "Nothing",
            "fields": [{"name": "nothing", "type": "null"}],
        },
    ],
)
def test_items_that_take_no_byte_are_refused_before_anything_is_read(items):
    """Four bytes could ask for 65,536 of them, and for as many in each of those."""
    field = {"name": "many", "type": {"type": "array", "items": items}}
    schema = {"type": "record", "name": "Bomb", "fields": [field]}
    with pytest.raises(SchemaError, match="/many: expected items that take a byte"):
        know(json.dumps(schema), 1)


@pytest.mark.parametrize("size", [-5, "a", 1.5, True])
def test_a_size_that_leads_backwards_or_nowhere_is_refused(size):
    fixed = {"type": "fixed", "name": "Odd", "size": size}
    schema = {
        "type": "record",
        "name": "Bomb",
        "fields": [{"name": "odd", "type": fixed}],
    }
    with pytest.raises(SchemaError, match="size in bytes|Avro schema"):
        know(json.dumps(schema), 1)


def test_a_recursive_schema_is_refused_before_anything_is_read():
    recursive = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node"]}],
    }
    with pytest.raises(SchemaError, match="no recursion"):
        know(json.dumps(recursive), 1)


def put(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


GOOD = encode(unroll())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "header of 5 bytes, found 0"),
        (None, "header of 5 bytes, found 0"),
        (b"\x00", "header of 5 bytes, found 1"),
        (b"\x01" + GOOD[1:], "first byte 0, found 1"),
        (GOOD[:-1], "found"),
        (GOOD[:40], "found"),
        (GOOD + b"\x00", "1 trailing bytes"),
        (encode(SAMPLES[2]), "expected Unroll, found StreamEnd"),
        (put(GOOD, 5, b"\xff" * 12), "more than 10 bytes"),
        (put(GOOD, 5, b"\x01"), "found"),
    ],
)
def test_bad_bytes_say_what_was_expected_and_found(data, says):
    with pytest.raises(SchemaError, match=says) as error:
        decode(data, Unroll)
    assert "expected" in str(error.value)


def test_an_unknown_id_is_not_the_records_fault():
    with pytest.raises(UnknownSchemaId, match="found 5"):
        decode(struct.pack(">BI", 0, 5) + GOOD[5:], Unroll)


@given(st.binary(max_size=200))
def test_random_bytes_are_only_ever_schema_errors(noise):
    for data in (noise, GOOD[:5] + noise):
        with pytest.raises(SchemaError):
            decode(data, Unroll, TransitionBatch, StreamEnd)


@given(st.integers(5, len(GOOD) - 1), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused_and_nothing_else(at, byte):
    try:
        record = decode(put(GOOD, at, bytes([byte])), Unroll)
        for tensor in (record.rewards, *record.observations.values()):
            tensor.array()
    except SchemaError as exc:
        assert str(exc)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rewards": pack(np.ones((STEPS, ENVS + 1), "<f4"))}, r"rewards: .*\[3, 2\]"),
        ({"rewards": pack(np.ones((STEPS, ENVS), "<i4"))}, "rewards: expected <f4"),
        ({"valid": pack(np.ones((STEPS, ENVS), "|u1"))}, "valid: expected |b1"),
        ({"num_steps": 0}, "num_steps, num_envs >= 1"),
        ({"sequence": -1}, "num_steps, num_envs >= 1"),
        ({"first_step": -1}, "first_step from 0 to 2"),
        # Its last step, and the credit for the next ones, would be beyond 64 bits.
        ({"first_step": 2**63 - 1}, "first_step from 0 to 2"),
        ({"sequence": 2**63 - 1}, "sequence, first_step from 0 to 2"),
        ({"worker": ""}, "worker: expected w<index>, found ''"),
        ({"worker": "x1"}, "worker: expected w<index>, found 'x1'"),
        (
            {"observations": {"": pack(np.ones((STEPS, ENVS, 4), "<f4"))}},
            r"observations/: expected the shape \[4, 2, ...\]",
        ),
        (
            {"behaviour": {"q_max": pack(np.ones((STEPS, ENVS), "<f4"))}},
            "behaviour/q_max",
        ),
    ],
)
def test_shapes_are_checked_once_at_decode(change, says):
    with pytest.raises(SchemaError, match=says):
        decode(encode(unroll(**change)), Unroll)


@pytest.mark.parametrize("worker", ["", "w", "w-1", "W1", "w1 ", "w" + "9" * 10])
def test_a_batch_of_nobody_is_refused(worker):
    """Its worker is the key of what is made of it, and an index among workers."""
    with pytest.raises(SchemaError, match="worker: expected w<index>, found"):
        decode(encode(batch(worker=worker)), TransitionBatch)


def test_returns_of_a_batch_have_their_dtypes():
    wrong = batch(bootstrap_steps=pack(np.ones((STEPS, ENVS), "<i8")))
    with pytest.raises(SchemaError, match="bootstrap_steps: expected <i4"):
        decode(encode(wrong), TransitionBatch)


def older_and_newer():
    older = json.loads(newest("StreamEnd").text)
    newer = json.loads(newest("StreamEnd").text)
    newer["fields"].append({"name": "host", "type": "string", "default": "?"})
    return older, newer


def test_a_field_that_a_newer_writer_adds_is_left_out():
    _, newer = older_and_newer()
    registry = Registry()
    schema = registry.add(json.dumps(newer))
    out = io.BytesIO(struct.pack(">BI", 0, schema.id))
    out.seek(5)
    sample = SAMPLES[2]
    fastavro.schemaless_writer(
        out, schema.parsed, {**dataclasses.asdict(sample), "host": "here"}
    )
    with pytest.raises(UnknownSchemaId):
        decode(out.getvalue(), StreamEnd)
    assert decode(out.getvalue(), StreamEnd, registry=registry) == sample
    assert writer_schema(out.getvalue(), registry).name == "StreamEnd"


def test_nan_stays_nan_and_the_first_text_of_an_id_wins():
    rewards = pack(np.full((STEPS, ENVS), np.nan))
    found = decode(encode(unroll(rewards=rewards)), Unroll)
    assert found.rewards.data == rewards.data
    registry = Registry()
    known = registry.by_id(newest("StreamEnd").id)
    assert registry.add(known.text + " ") is known


def test_a_value_that_does_not_fit_is_named():
    with pytest.raises(SchemaError, match="StreamEnd: cannot be written"):
        encode(StreamEnd("e", "run", "w0", "seven", "r", 1))
