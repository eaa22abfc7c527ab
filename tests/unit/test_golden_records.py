"""What somebody's log holds can be read for ever, exactly as it was written."""

import io
import json
from importlib.resources import files

import fastavro
import pytest

from schemas import records
from schemas.codec import decode, decode_any, encode, writer_schema
from schemas.encodings import from_wire
from schemas.registry import newest, shipped
from tests.golden.make import HERE, as_json, golden_records, main, schema_hash, stem

# What fields say of a record that is older than they are.
ADDED_SINCE = {
    "ExperimentSpec.v1": {"managed_by": "run"},
    "PolicyVersion.v1": {
        "chunk_offsets": [],
        "tensors_bytes": 0,
        "num_parameters": 0,
        "keyframe_offsets": [],
        "keyframe_sha256": "",
    },
}


def as_ours(value):
    """Say in one field how a tensor is packed, where the schema needs two."""
    if isinstance(value, list):
        return [as_ours(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: as_ours(item) for key, item in value.items()}
    if "codec" in found:
        found["encoding"] = from_wire(found["encoding"], found.pop("codec"))
    return found


each_version = pytest.mark.parametrize(
    "schema", shipped(), ids=lambda schema: stem(schema.name, schema.version)
)


def golden(schema):
    path = HERE / stem(schema.name, schema.version)
    facts = json.loads(path.with_name(path.name + ".json").read_text("utf-8"))
    return path.with_name(path.name + ".bin").read_bytes(), facts


def exactly(value):
    """Make 1, 1.0 and True differ, and the order of a map count."""
    return json.dumps(as_json(value))


def test_there_is_a_golden_file_for_every_version_and_for_nothing_else():
    names = {stem(schema.name, schema.version) for schema in shipped()}
    assert {path.name for path in HERE.glob("*.v*")} == {
        name + suffix for name in names for suffix in (".bin", ".json")
    }


@each_version
def test_a_shipped_file_is_never_edited(schema):
    assert (
        schema_hash(schema.name, schema.version) == golden(schema)[1]["schema_sha256"]
    )


@each_version
def test_it_is_read_exactly(schema):
    data, facts = golden(schema)
    assert writer_schema(data).version == schema.version
    found = decode(data, getattr(records, schema.name))
    added = ADDED_SINCE.get(stem(schema.name, schema.version), {})
    assert exactly(found) == json.dumps(facts["record"] | added)
    assert exactly(decode_any(data)) == exactly(found)


@each_version
def test_plain_fastavro_reads_it_with_the_shipped_file(schema):
    data, facts = golden(schema)
    name = f"{stem(schema.name, schema.version)}.avsc"
    text = files("schemas").joinpath("avro", name).read_text("utf-8")
    body = io.BytesIO(data[5:])
    found = fastavro.schemaless_reader(body, json.loads(text), None)
    assert not body.read()
    assert exactly(as_ours(found)) == json.dumps(facts["record"])


@each_version
def test_the_newest_version_is_written_with_the_same_bytes(schema):
    if schema.version != newest(schema.name).version:
        pytest.skip("older versions are read, and no longer written")
    data, _ = golden(schema)
    assert encode(decode(data, getattr(records, schema.name))) == data


def test_compressed_and_odd_values_came_through():
    unroll = decode_any(golden(newest("Unroll"))[0])
    for name in ("camera/left", "camera/right"):
        assert unroll.observations[name].array().tobytes() == bytes(range(24))
    assert unroll.observations["camera/right"].encoding == "ZSTD_DELTA"
    assert unroll.rewards.array().tobytes() == bytes.fromhex(
        "0000c07f000000800000807f01000000000080ff00006040"
    )
    assert decode_any(golden(newest("DeadLetter"))[0]).value == bytes(range(256))


def test_writing_again_changes_nothing(capsys):
    before = {path.name: path.read_bytes() for path in HERE.glob("*.v*")}
    main()
    assert {path.name: path.read_bytes() for path in HERE.glob("*.v*")} == before
    assert capsys.readouterr().out == ""
    assert golden_records().keys() == {schema.name for schema in shipped()}
