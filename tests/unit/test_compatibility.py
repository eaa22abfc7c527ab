import copy
import io
import json
import warnings

import fastavro
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from schemas.compatibility import check_upgrade, incompatibilities
from schemas.errors import SchemaError
from schemas.parsed import make_ready
from schemas.registry import know, know_foreign, newest
from tests.unit.avro_pairs import (
    Pair,
    Resolver,
    covering,
    definitions,
    pairs,
    same,
    write,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from avro.compatibility import (
        ReaderWriterCompatibilityChecker,
        SchemaCompatibilityType,
    )
    from avro.schema import parse as apache_parse

generous = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def parsed(schema):
    found = fastavro.parse_schema(copy.deepcopy(schema))
    make_ready(found)
    return found


def problems_of(pair):
    # With names as they stand, which is harder than what `know` hands out.
    reader, writer = (
        fastavro.parse_schema(copy.deepcopy(schema))
        for schema in (pair.reader, pair.writer)
    )
    found = incompatibilities(reader, writer)
    if not definitions(pair.writer).keys() & {"Node", "R14"}:
        ready = incompatibilities(parsed(pair.reader), parsed(pair.writer))
        assert [p.path for p in ready] == [p.path for p in found]
    return found


def read(pair, value):
    body = io.BytesIO(write(pair.writer, value, definitions(pair.writer)))
    found = fastavro.schemaless_reader(body, parsed(pair.writer), parsed(pair.reader))
    assert not body.read()
    return found


def is_read_right(pair, value, *, exact_first=False):
    """Whether fastavro reads what the specification says."""
    resolver = Resolver(pair, exact_first=exact_first)
    try:
        return same(
            read(pair, value), resolver.resolve(pair.writer, pair.reader, value)
        )
    except Exception:
        return False


def record(*fields, name="R"):
    return {"type": "record", "name": name, "fields": list(fields)}


def field(kind, name="f", **more):
    return {"name": name, "type": kind, **more}


INNER = record(field("int", "x"), name="Inner")
INNER_MORE = record(field("int", "x"), field("string", "y"), name="Inner")
NULLABLE_INNER = record(field(["null", INNER], "g"))
NULLABLE_G = field(["null", "Inner"], "g")


@generous
@given(pairs())
@example(Pair(record(field("string")), record(field(["bytes", "string"]))))
@example(Pair(record(field("long")), record(field(["double", "long"]))))
@example(Pair(record(field(INNER), field("Inner", "g")), NULLABLE_INNER))
@example(Pair(record(field(INNER, "g")), record(field(INNER), NULLABLE_G)))
def test_verdicts_are_what_reading_shows(pair):
    assume(pair.writer != pair.reader)  # fastavro resolves nothing then
    problems = problems_of(pair)
    values = covering(pair.writer, definitions(pair.writer))
    if not problems:
        for value in values:
            assert is_read_right(pair, value), value
    else:
        assert not all(
            is_read_right(pair, value, exact_first=True) for value in values
        ), [str(problem) for problem in problems]


@generous
@given(pairs())
def test_what_is_compatible_here_is_so_for_apache(pair):
    if problems_of(pair):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader, writer = (
            apache_parse(json.dumps(schema)) for schema in (pair.reader, pair.writer)
        )
    verdict = ReaderWriterCompatibilityChecker().get_compatibility(reader, writer)
    assert verdict.compatibility is SchemaCompatibilityType.compatible


@generous
@given(pairs())
def test_every_problem_names_a_field_of_the_reader(pair):
    for problem in problems_of(pair):
        place, named = pair.reader, definitions(pair.reader)
        for step in problem.path.split("/")[1:]:
            place = _inner(place, step, named)
        assert place is not None, problem


def _inner(place, step, named):
    place = named.get(place, place) if isinstance(place, str) else place
    if isinstance(place, list):
        found = (_inner(branch, step, named) for branch in place)
        return next((each for each in found if each is not None), None)
    if not isinstance(place, dict):
        return None
    if step == "[]":
        return place.get("items", place.get("values"))
    fields = {f["name"]: f["type"] for f in place.get("fields", ())}
    return fields.get(step)


E_AB = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
E_A = {"type": "enum", "name": "E", "symbols": ["A"]}
OTHER = record(field("int", "x"), name="Other")


@pytest.mark.parametrize(
    ("writer", "reader", "says"),
    [
        ("long", "int", "/f: expected what reads long, found int"),
        ("double", "float", "/f: expected what reads double, found float"),
        (E_AB, E_A, "/f: expected the symbols B, or a default, found A"),
        (E_AB, "string", "/f: expected what reads enum E, found string"),
        (["null", "int"], "int", "/f: expected what reads null, found int"),
        (
            "string",
            ["null", "int"],
            "/f: expected what reads string, found a union of null, int",
        ),
        (
            {"type": "map", "values": "long"},
            {"type": "map", "values": "int"},
            "/f: expected what reads map of long, found map of int",
        ),
        (
            {"type": "array", "items": INNER},
            {"type": "array", "items": INNER_MORE},
            "/f/[]/y: expected a default, since the writer has no such field, found "
            "none",
        ),
        (INNER, OTHER, "/f: expected what reads record Inner, found record Other"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "/f: expected what reads fixed F of 2 bytes, found fixed F of 3 bytes",
        ),
        (
            "string",
            ["bytes", "string"],
            "/f: expected string before bytes, which is taken, found a union of "
            "bytes, string",
        ),
    ],
)
def test_a_refusal_names_field_expectation_and_finding(writer, reader, says):
    found = problems_of(Pair(record(field(writer)), record(field(reader))))
    assert [str(problem) for problem in found] == [says]


def test_a_renamed_field_is_one_that_is_missing_unless_it_has_an_alias():
    old = record(field("int", "steps"))
    new = record(field("int", "num_steps"))
    (problem,) = problems_of(Pair(old, new))
    assert problem.path == "/num_steps"
    new["fields"][0]["aliases"] = ["steps"]
    assert not problems_of(Pair(old, new))


def test_recursion_is_followed_once_and_no_further():
    node = record(field("int", "x"), field(["null", "Node"], "next"), name="Node")
    wider = record(field("long", "x"), field(["null", "Node"], "next"), name="Node")
    assert not problems_of(Pair(node, wider))
    assert [p.path for p in problems_of(Pair(wider, node))] == ["/x"]


def test_depth_is_bounded():
    deep = "int"
    for _ in range(70):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SchemaError, match="a depth of at most 64"):
        problems_of(Pair(record(field(deep)), record(field(deep))))


def names_in_names():
    inner = "int"
    for level in range(15):
        uses = [field(inner, "f0")]
        below = f"R{level - 1}" if level else "int"
        uses += [field(below, f"f{n}") for n in range(1, 10)]
        inner = record(*uses, name=f"R{level}")
    return inner


def test_names_used_in_names_are_compared_once():
    """Each level uses the one below ten times: walked out, there are 10^15."""
    inner = names_in_names()
    assert not problems_of(Pair(inner, inner))
    with pytest.raises(
        SchemaError, match="at most 10000 types, found 1111111111111111"
    ):
        know(json.dumps(inner), 1)


def upgrade(new, old):
    return [str(problem) for problem in check_upgrade(parsed(new), parsed(old))]


def test_an_enum_grows_only_where_old_readers_have_a_default():
    old, new = record(field(E_A)), record(field(E_AB))
    assert upgrade(new, old) == [
        "/f: expected no symbols beyond A, since that enum has no default for readers "
        "that do not know them, found B"
    ]
    old["fields"][0]["type"] = {**E_A, "default": "A"}
    assert upgrade(new, old) == []


def test_every_shipped_schema_may_follow_itself():
    for name in ("Unroll", "TransitionBatch", "Member", "PolicyGraph"):
        assert check_upgrade(newest(name).parsed, newest(name).parsed) == []


def test_a_symbol_that_is_new_is_read_as_the_default_or_not_at_all():
    writer, known = record(field(E_AB)), {**E_A, "default": "A"}
    assert read(Pair(writer, record(field(known))), {"f": "B"}) == {"f": "A"}
    with pytest.raises(fastavro.read.SchemaResolutionError, match="B not found"):
        read(Pair(writer, record(field(E_A))), {"f": "B"})


@given(st.sampled_from(["float", "double"]), st.floats(allow_nan=True))
def test_a_double_is_read_as_a_double_whatever_the_order(first, number):
    second = "double" if first == "float" else "float"
    union = record(field([first, second]), field("int", "g"))
    newer = record(*union["fields"], field("int", "h", default=1))
    pair = Pair(union, newer)
    value = {"f": (union["fields"][0]["type"].index("double"), number), "g": 1}
    assert same(read(pair, value)["f"], number)


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0000\u0080", b"\x00\x80"),
        (["bytes", "null"], "\u00e9", b"\xe9"),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": ["null", "bytes"]}, {"k": "a"}, {"k": b"a"}),
        (
            record(field("bytes", "d"), field("int", "n", default=3), name="Inner"),
            {"d": "\u00ff"},
            {"d": b"\xff", "n": 3},
        ),
        ("double", 1, 1.0),
        (E_A, "A", "A"),
    ],
)
def test_a_default_comes_back_as_a_value_of_its_type(kind, default, value):
    pair = Pair(record(), record(field(kind, default=default)))
    assert same(read(pair, {})["f"], value)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("bytes", "\u0100"),
        ({"type": "fixed", "name": "F", "size": 2}, "a"),
        ("int", 2**31),
        ("long", True),
        ("double", "NaN"),
        (E_A, "B"),
        (record(field("bytes", "d"), name="Inner"), {}),
        (record(field("bytes", "d"), name="Inner"), {"d": "", "e": 1}),
        (["null", "int"], "text"),
        ({"type": "array", "items": "int"}, [None]),
    ],
)
def test_a_default_that_is_not_of_its_type_is_refused_by_name(kind, default):
    with pytest.raises((SchemaError, fastavro.schema.SchemaParseException), match="f"):
        parsed(record(field(kind, default=default)))


def test_a_number_that_json_has_not_is_no_default():
    text = json.dumps(record(field("double", default=float("nan"))))
    with pytest.raises(SchemaError, match="a number that JSON has, found NaN"):
        know(text, 1)


@pytest.mark.parametrize("depth", [40, 500, 100_000])
def test_a_schema_that_is_nested_too_deeply_is_refused(depth):
    inner = '{"type": "array", "items": ' * depth + '"int"' + "}" * depth
    text = json.dumps(record(field("@"))).replace('"@"', inner)
    with pytest.raises(SchemaError):
        know(text, 1)


def test_of_what_others_wrote_only_the_canonical_form_is_used():
    """A logical type is not in the id, and would make a date of a number."""
    dated = record(field({"type": "int", "logicalType": "date"}, doc="d", default=3))
    writer = know_foreign(json.dumps(dated)).parsed
    found = fastavro.schemaless_reader(io.BytesIO(b"\x02"), writer, None)
    assert same(found, {"f": 1})
    assert "logicalType" not in str(writer) and "default" not in str(writer)
