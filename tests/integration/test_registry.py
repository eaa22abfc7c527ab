"""Clients of a Confluent Schema Registry, unchanged, against `rollstream registry`."""

from __future__ import annotations

import dataclasses
import json
import urllib.parse
from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from infra.errors import SettingsError
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.foreign_schemas import learn_schema
from infra.kafka.reading import read_to_end
from infra.settings import Settings
from rollstream.registry_guard import check_reach
from schemas.codec import decode, encode
from schemas.errors import UnknownSchemaId
from schemas.records import StreamEnd
from schemas.registry import Registry, newest, schema_id, shipped
from tests.integration.registry_rig import (
    added,
    ask,
    client,
    refused_registry,
    registry,
    thing,
    unique,
)
from tests.unit.sample_records import SAMPLES
from tests.unit.test_codec import as_plain

pytestmark = pytest.mark.kafka
MIB = 1 << 20


@pytest.fixture(scope="module")
def url(settings: Settings) -> Iterator[str]:
    with registry(settings) as url:
        yield url


@pytest.fixture(scope="module")
def confluent(url: str) -> Iterator[SchemaRegistryClient]:
    with client(url) as found:
        yield found


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def avro(text: str) -> Schema:
    return Schema(text, "AVRO")


def test_a_foreign_writer_of_a_newer_schema_is_read_by_our_codec(
    settings: Settings, confluent: SchemaRegistryClient, topic: str
) -> None:
    newer = json.loads(newest("StreamEnd").text)
    newer["fields"].append(added("host", "string", "?"))
    serialize = AvroSerializer(confluent, json.dumps(newer))
    sample = StreamEnd("e", "run", "w3", 8, "stopped", 1)
    value = serialize(
        {**dataclasses.asdict(sample), "host": "there"},
        value_of("rollstream.foreign.trajectories"),
    )
    assert value is not None
    Sender(make_producer(settings, client_id="foreign")).send_and_wait(
        topic, value, "w3"
    )
    (message,) = read_to_end(settings, topic)
    ours = Registry()
    with pytest.raises(UnknownSchemaId) as unknown:
        decode(message.value, StreamEnd, registry=ours)
    assert unknown.value.schema_id == schema_id(newer)
    assert learn_schema(settings, ours, unknown.value.schema_id)
    assert decode(message.value, StreamEnd, registry=ours) == sample
    # The serializer asked for the topic's subject, and it is the record's.
    versions = confluent.get_versions("rollstream.StreamEnd")
    assert versions == [1, 2]
    latest = confluent.get_latest_version("rollstream.StreamEnd")
    assert latest.schema_id == schema_id(newer)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: type(s).__name__)
def test_our_records_are_read_by_a_deserializer(
    sample: object, confluent: SchemaRegistryClient
) -> None:
    found = AvroDeserializer(confluent)(encode(sample), value_of("t"))
    assert found == as_plain(sample)


def test_every_shipped_schema_is_there_as_a_subject(
    confluent: SchemaRegistryClient,
) -> None:
    subjects = confluent.get_subjects()
    for schema in shipped():
        subject = f"rollstream.{schema.name}"
        assert subject in subjects
        found = confluent.get_version(subject, schema.version)
        assert (found.schema_id, found.version) == (schema.id, schema.version)
        assert json.loads(found.schema.schema_str or "") == json.loads(schema.text)


def test_registering_looking_up_and_checking(confluent: SchemaRegistryClient) -> None:
    name = unique()
    subject = f"{name}/with a slash, ü"
    first, second = thing(name), thing(name, added("b"))
    number = confluent.register_schema(subject, avro(first))
    assert number == schema_id(json.loads(first))
    assert confluent.test_compatibility(subject, avro(second))
    assert confluent.register_schema(subject, avro(second)) == schema_id(
        json.loads(second)
    )
    assert confluent.get_versions(subject) == [1, 2]
    assert subject in confluent.get_subjects()
    with client(confluent._rest_client.base_urls[0]) as other:  # with no cache
        assert other.get_schema(number).schema_str == first
        assert other.get_version(subject, 1).schema.schema_str == first
        assert other.get_latest_version(subject).version == 2
        looked_up = other.lookup_schema(subject, avro(second))
        assert (looked_up.version, looked_up.subject) == (2, subject)
        uses = other.get_schema_versions(number)
        assert [(use.subject, use.version) for use in uses] == [(subject, 1)]
        assert other.get_subjects_by_schema_id(number) == [subject]
        assert other.get_schema_types() == ["AVRO"]
        # Again, and spelt in another way.
        spelt = json.dumps(json.loads(second), indent=3)
        assert other.register_schema(subject, avro(spelt)) == looked_up.schema_id
        assert other.get_versions(subject) == [1, 2]


def test_an_incompatible_schema_is_refused_by_name(
    url: str, confluent: SchemaRegistryClient
) -> None:
    name = unique()
    confluent.register_schema(name, avro(thing(name, added("b"))))
    bad = thing(name, {"name": "c", "type": "int"})
    with pytest.raises(SchemaRegistryError) as refused:
        confluent.register_schema(name, avro(bad))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert f"{name} version 1: /c: expected a default" in str(refused.value)
    assert not confluent.test_compatibility(name, avro(bad))
    status, found = ask(
        f"{url}/compatibility/subjects/{name}/versions/latest?verbose=true",
        "POST",
        {"schema": bad},
    )
    assert status == 200 and not found["is_compatible"]
    assert "/c: expected a default" in found["messages"][0]
    docs = json.loads(thing(name, added("b", default=5)))
    with pytest.raises(SchemaRegistryError, match="shows in the canonical form"):
        confluent.register_schema(name, avro(json.dumps(docs)))
    assert confluent.get_versions(name) == [1]


def test_a_topic_is_an_alias_of_the_subject_of_its_record(
    url: str, confluent: SchemaRegistryClient
) -> None:
    alias = "rollstream.some-name.replay-value"
    latest = confluent.get_latest_version(alias)
    assert latest.schema_id == newest("TransitionBatch").id
    text = newest("TransitionBatch").text
    found = confluent.lookup_schema(alias, avro(text))
    assert found.version == newest("TransitionBatch").version
    assert confluent.register_schema(alias, avro(text)) == latest.schema_id
    assert alias not in confluent.get_subjects()
    status, found = ask(
        f"{url}/subjects/{alias}/versions", "POST", {"schema": thing("Foreign")}
    )
    assert status == 409
    assert "expected a record TransitionBatch, found Foreign" in found["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/subjects/none/versions", None, 404, 40401),
        ("GET", "/subjects/none/versions/1", None, 404, 40401),
        ("POST", "/subjects/none", {"schema": thing("X")}, 404, 40401),
        ("GET", "/config/none", None, 404, 40401),
        (
            "POST",
            "/compatibility/subjects/none/versions/latest",
            {"schema": thing("X")},
            404,
            40401,
        ),
        ("GET", "/subjects/rollstream.Credit/versions/9", None, 404, 40402),
        ("GET", "/subjects/rollstream.Credit/versions/0", None, 422, 42202),
        ("GET", "/subjects/rollstream.Credit/versions/old", None, 422, 42202),
        ("POST", "/subjects/rollstream.Credit", {"schema": thing("X")}, 404, 40403),
        ("GET", "/schemas/ids/5", None, 404, 40403),
        ("GET", "/schemas/ids/-5", None, 404, 40403),
        ("GET", "/schemas/ids/five", None, 404, 40403),
        ("POST", "/subjects/x/versions", {"schema": '"string"'}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": "{"}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": "[" * 9_000}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": 5}, 422, 42201),
        ("POST", "/subjects/x/versions", {}, 422, 42201),
        (
            "POST",
            "/subjects/x/versions",
            {"schema": thing("X"), "schemaType": "PROTOBUF"},
            422,
            42201,
        ),
        (
            "POST",
            "/subjects/x/versions",
            {"schema": thing("X"), "references": [{"name": "y"}]},
            422,
            42201,
        ),
        ("POST", "/subjects/%00/versions", {"schema": thing("X")}, 422, 42201),
        ("POST", "/subjects/x/versions", b"not json", 400, 400),
        ("POST", "/subjects/x/versions", b"[" * 100_000, 400, 400),
        ("POST", "/subjects/x/versions", [1], 422, 422),
        ("POST", "/subjects/x/versions", b" " * (MIB + 1), 413, 413),
        ("PUT", "/config", {"compatibility": "NONE"}, 422, 42203),
        ("PUT", "/config/rollstream.Credit", {"compatibility": "FULL"}, 422, 42203),
        ("PUT", "/mode", {"mode": "IMPORT"}, 422, 42204),
        ("DELETE", "/subjects/rollstream.Credit", None, 405, 405),
        ("DELETE", "/subjects/rollstream.Credit/versions/1", None, 405, 405),
        ("DELETE", "/config", None, 405, 405),
        ("GET", "/nothing/here", None, 404, 404),
        ("PATCH", "/subjects", None, 405, 405),
    ],
)
def test_what_is_wrong_has_the_code_that_clients_know(
    url: str, method: str, path: str, body: object, status: int, code: int
) -> None:
    assert urllib.parse.urlsplit(url).hostname == "127.0.0.1"
    found_status, found = ask(url + path, method, body)
    assert (found_status, found["error_code"]) == (status, code), found
    assert found["message"]


def test_the_rule_is_one_for_all(confluent: SchemaRegistryClient) -> None:
    level = "BACKWARD_TRANSITIVE"
    assert confluent.get_compatibility() == level
    assert confluent.get_compatibility("rollstream.Unroll") == level
    assert confluent.set_compatibility(level=level) == {"compatibility": level}
    assert confluent.get_global_mode() == "READWRITE"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:8081"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:8081"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_a_web_page_cannot_ask(url: str, headers: dict[str, str], status: int) -> None:
    assert ask(f"{url}/subjects", **headers)[0] == status


def test_a_form_of_a_web_page_is_no_request(url: str) -> None:
    body = json.dumps({"schema": thing("X")}).encode()
    path = f"{url}/subjects/x/versions"
    assert ask(path, "POST", body, Content_Type="text/plain")[0] == 415


def test_a_restart_keeps_everything(settings: Settings, url: str) -> None:
    name = unique()
    with registry(settings) as first, client(first) as confluent:
        confluent.register_schema(name, avro(thing(name)))
        number = confluent.register_schema(name, avro(thing(name, added("b"))))
        before = confluent.get_subjects()
    with registry(settings) as again, client(again) as confluent:
        assert confluent.get_versions(name) == [1, 2]
        assert confluent.get_latest_version(name).schema_id == number
        assert confluent.get_subjects() == before
    # And one that ran all the time sees what the others registered.
    with client(url) as confluent:
        assert confluent.get_versions(name) == [1, 2]
        assert confluent.get_schema(number).schema_str == thing(name, added("b"))


def test_others_can_reach_it_only_with_the_token(settings: Settings) -> None:
    token = "correct horse battery staple"
    with registry(
        settings, "--host", "0.0.0.0", ROLLSTREAM_REGISTRY_TOKEN=token
    ) as url:
        assert ask(f"{url}/subjects")[0] == 401
        assert ask(f"{url}/subjects", Authorization="Bearer wrong")[0] == 401
        assert ask(f"{url}/subjects", Authorization=f"Basic {token}")[0] == 401
        assert ask(f"{url}/subjects", Authorization="Bearer \xff\xfe")[0] == 401
        config = {
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": token,
            "bearer.auth.logical.cluster": "any",
            "bearer.auth.identity.pool.id": "any",
        }
        with SchemaRegistryClient({"url": url, **config}) as confluent:
            assert "rollstream.Unroll" in confluent.get_subjects()


def test_what_would_be_open_to_others_is_refused(settings: Settings) -> None:
    code, out, errors = refused_registry(settings, "--host", "0.0.0.0")
    assert (code, out) == (2, "")
    assert "expected ROLLSTREAM_REGISTRY_TOKEN" in errors and "Traceback" not in errors
    with pytest.raises(SettingsError, match="expected ROLLSTREAM_REGISTRY_TOKEN"):
        check_reach("::", None)
    expected = "expected at least 16 ASCII characters, found 5"
    with pytest.raises(SettingsError, match=expected):
        check_reach("127.0.0.1", "short")


def test_a_taken_port_is_told(settings: Settings, url: str) -> None:
    port = str(urllib.parse.urlsplit(url).port)
    code, out, errors = refused_registry(settings, "--port", port)
    assert (code, out) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port}: the port is taken" in errors
    assert "--port" in errors and "Traceback" not in errors
