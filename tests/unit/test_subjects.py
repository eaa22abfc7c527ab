"""The same log gives the same versions to everybody, whatever was written at once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.compatibility import IncompatibleSchema
from schemas.errors import SchemaError
from schemas.registry import newest, schema_id
from schemas.subjects import (
    Registration,
    SubjectLog,
    parse_registration,
    resolve_subject,
    same_meaning,
)


def schema(*fields, name="Thing", **more):
    found = [
        {"name": each, "type": "int"} if isinstance(each, str) else each
        for each in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": found, **more})


def added(name, kind="int", default=0):
    return {"name": name, "type": kind, "default": default}


ONE = schema("a")
TWO = schema("a", added("b"))


def registration(text, subject="s", version=1):
    return Registration(subject, version, schema_id(json.loads(text)), text)


def log_of(*records):
    log = SubjectLog()
    for record in records:
        log.take(parse_registration(record.to_value()))
    return log


def test_a_record_comes_back_and_its_key_is_the_id():
    record = registration(ONE)
    assert parse_registration(record.to_value()) == record
    assert record.key == str(schema_id(json.loads(ONE)))


def test_a_bare_schema_can_be_read_with_and_has_no_version():
    record = parse_registration(ONE.encode())
    assert (record.subject, record.version, record.text) == ("", 0, ONE)
    log = log_of(record)
    assert log.text(record.id) == ONE
    assert log.subjects() == []


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "expected JSON"),
        (b"\xff", "expected JSON"),
        (b"[" * 100_000, "expected JSON"),
        (b'"string"', "a schema of a record"),
        (b'{"schema": "{}"}', "expected an Avro schema"),
        (json.dumps({"schema": ONE, "id": 1}).encode(), "expected the id"),
        (json.dumps({"schema": ONE, "subject": 5}).encode(), "expected a subject"),
        (schema("a", __fastavro_parsed=True).encode(), "without a leading __"),
    ],
)
def test_what_cannot_be_read_with_says_why(value, says):
    with pytest.raises(SchemaError, match=says):
        parse_registration(value)


def test_versions_are_numbered_by_the_log():
    log = log_of(registration(ONE), registration(TWO, version=2))
    assert [(v.version, v.text) for v in log.versions("s")] == [(1, ONE), (2, TWO)]
    assert log.plan("s", ONE) == registration(ONE)
    third = schema("a", added("b"), added("c"))
    assert log.plan("s", third) == registration(third, version=3)


def test_of_two_that_claim_a_version_the_first_has_it():
    other = schema("a", added("c"))
    log = log_of(
        registration(ONE), registration(TWO, version=2), registration(other, version=2)
    )
    assert [v.text for v in log.versions("s")] == [ONE, TWO]
    # The other one is known by its id, and tries again.
    assert log.text(schema_id(json.loads(other))) == other
    assert log.plan("s", other).version == 3


def test_the_same_schema_twice_is_one_version():
    log = log_of(registration(ONE), registration(ONE), registration(ONE, version=2))
    assert [v.version for v in log.versions("s")] == [1]


def test_a_version_that_skips_one_does_not_count():
    log = log_of(registration(ONE), registration(TWO, version=3))
    assert [v.text for v in log.versions("s")] == [ONE]


def test_a_schema_can_be_a_version_of_two_subjects():
    log = log_of(registration(ONE), registration(ONE, subject="t"))
    uses = log.uses(log.versions("s")[0].id)
    assert [(use.subject, use.version) for use in uses] == [("s", 1), ("t", 1)]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (schema("a", added("b", default=1)), "another default"),
        (schema({"name": "a", "type": "int", "doc": "x"}, added("b")), "docs"),
        (schema({"name": "a", "type": "int", "aliases": ["z"]}, added("b")), "alias"),
        (
            schema(
                {"name": "a", "type": {"type": "int", "logicalType": "date"}},
                added("b"),
            ),
            "a logical type",
        ),
    ],
)
def test_a_change_that_the_id_does_not_show_is_refused(changed, why):
    log = log_of(registration(TWO))
    assert schema_id(json.loads(changed)) == log.versions("s")[0].id, why
    assert log.find("s", changed) is None
    for subject in ("s", "another"):
        with pytest.raises(IncompatibleSchema, match="shows in the canonical form"):
            log.plan(subject, changed)
    # Published all the same, it changes nothing.
    log.take(registration(changed, subject="another"))
    assert log.subjects() == ["s"]
    assert log.text(log.versions("s")[0].id) == TWO


def test_another_spelling_is_the_same_schema():
    spelt = json.dumps(
        {
            "fields": [{"type": {"type": "int"}, "name": "a"}],
            "name": "n.Thing",
            "type": "record",
        },
        indent=2,
    )
    plain = schema("a", namespace="n")
    assert same_meaning(spelt, plain)
    assert log_of(registration(plain)).plan("s", spelt).version == 1


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (schema("a", "b", "c"), "s version 1: /c: expected a default"),
        (schema("a", "bb"), "s version 1: /bb: expected a default"),
        (
            schema("a", {"name": "b", "type": "string"}),
            "s version 1: /b: expected what reads int, found string",
        ),
        (schema("a", "b", name="Other"), "expected what reads record Thing"),
        # Version 2 has it as long: what reads version 1 does not read that.
        (
            schema("a", "b", {"name": "x", "type": "int", "default": 0}),
            "s version 2: /x: expected what reads long, found int",
        ),
    ],
)
def test_a_schema_has_to_read_every_version_before_it(new, says):
    second = schema("a", "b", added("x", "long"))
    log = log_of(registration(schema("a", "b")), registration(second, version=2))
    with pytest.raises(IncompatibleSchema) as error:
        log.plan("s", new)
    assert says in str(error.value)


@pytest.mark.parametrize("subject", ["", "a\nb", "\x00", "x" * 250])
def test_names_of_subjects_are_checked(subject):
    with pytest.raises(SchemaError, match="subject: expected 1 to 249"):
        SubjectLog().plan(subject, ONE)


def test_a_schema_that_no_record_could_hold_is_refused():
    with pytest.raises(SchemaError, match="at most 524288 characters"):
        SubjectLog().plan("s", schema("a", doc="x" * 600_000))
    with pytest.raises(SchemaError, match="at most 1000000 bytes"):
        SubjectLog().plan("s", schema("a", doc="@").replace("@", "é" * 200_000))


@pytest.mark.parametrize(
    ("subject", "record", "found"),
    [
        ("rollstream.e1.trajectories-value", None, "rollstream.Unroll"),
        ("rollstream.e1.trajectories-value", "StreamEnd", "rollstream.StreamEnd"),
        ("rollstream.e-1.policy-history-value", None, "rollstream.PolicyVersion"),
        ("rollstream.status-value", None, "rollstream.RoleStatus"),
        ("rollstream.e1.status-value", None, "rollstream.e1.status-value"),
        ("rollstream.trajectories-value", None, "rollstream.trajectories-value"),
        ("rollstream.E.trajectories-value", None, "rollstream.E.trajectories-value"),
        ("rollstream.schemas-value", None, "rollstream.schemas-value"),
        ("orders-value", "Unroll", "orders-value"),
    ],
)
def test_the_subject_of_a_topic_is_that_of_its_record(subject, record, found):
    assert resolve_subject(subject, record and newest(record).text) == found


def test_a_topic_takes_only_its_records():
    with pytest.raises(IncompatibleSchema, match="expected a record TransitionBatch"):
        resolve_subject("rollstream.e1.replay-value", ONE)


VERSIONS = [ONE, TWO, schema("a", added("c")), schema("a", added("b", "string", ""))]


@given(st.lists(st.tuples(st.sampled_from(VERSIONS), st.integers(0, 3)), max_size=8))
def test_whatever_is_in_the_log_versions_have_no_holes_and_no_repetition(entries):
    log = log_of(*(registration(text, version=version) for text, version in entries))
    versions = log.versions("s")
    assert [v.version for v in versions] == list(range(1, len(versions) + 1))
    assert len({v.id for v in versions}) == len(versions)
