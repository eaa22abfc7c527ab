"""Pairs of Avro schemas, values of the first, and what the specification says of them.

Written from the specification alone: nothing here is shared with what it judges.
"""

import struct
from dataclasses import dataclass

from hypothesis import strategies as st

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTIONS = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"),
    ("long", "double"), ("float", "double"), ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip
DEFAULTS = [
    ("int", 7, 7),
    ("bytes", "\u00ff", b"\xff"),
    (["null", "string"], None, None),
    ({"type": "array", "items": "bytes"}, ["\u0080"], [b"\x80"]),
    ("double", 2, 2.0),
]
NAMES = "abcd"


@dataclass(frozen=True)
class Pair:
    """Two schemas; names are defined where they are used first."""

    writer: object
    reader: object


def emit(schema, table, seen):
    """Inline the definition of a name at its first use, as JSON has it."""
    if isinstance(schema, list):
        return [emit(branch, table, seen) for branch in schema]
    if isinstance(schema, dict):
        key = "items" if schema["type"] == "array" else "values"
        return {"type": schema["type"], key: emit(schema[key], table, seen)}
    if schema not in table:
        return schema
    definition = table[schema]
    if definition["name"] in seen:
        return definition["name"]
    seen.add(definition["name"])
    if definition["type"] != "record":
        return dict(definition)
    fields = [{**f, "type": emit(f["type"], table, seen)} for f in definition["fields"]]
    return {**definition, "fields": fields}


def branch_key(schema):
    return schema["type"] if isinstance(schema, dict) else schema


@st.composite
def any_type(draw, names, depth=2):
    kinds = [*PRIMITIVES, *names, *(("array", "map", "union") if depth else ())]
    kind = draw(st.sampled_from(kinds))
    if kind == "union":
        branches = draw(
            st.lists(any_type(names, 0), min_size=1, max_size=3, unique_by=branch_key)
        )
        return branches
    if kind in ("array", "map"):
        item = draw(any_type(names, depth - 1))
        return {"type": kind, "items" if kind == "array" else "values": item}
    return kind


@st.composite
def pairs(draw):
    """Draw a writer's schema, and a reader's that was changed here and there."""
    table = {}
    for number in range(draw(st.integers(0, 2))):
        kind, name = draw(st.sampled_from(["enum", "fixed", "record"])), f"T{number}"
        table[name] = draw(definition(kind, name, list(table)))
    table["R"] = draw(definition("record", "R", list(table)))
    changed = {name: draw(change(table[name], list(table)[:-1])) for name in table}
    # A name stays in the reader's table: what it is called may have changed.
    return Pair(emit("R", table, set()), emit("R", changed, set()))


@st.composite
def definition(draw, kind, name, names):
    if kind == "enum":
        count = draw(st.integers(1, 3))
        return {"type": "enum", "name": name, "symbols": list("XYZ"[:count])}
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": draw(st.integers(0, 2))}
    labels = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    fields = [{"name": label, "type": draw(any_type(names))} for label in labels]
    return {"type": "record", "name": name, "fields": fields}


def seldom(draw, one_in=6):
    return draw(st.integers(1, one_in)) == one_in


@st.composite
def change(draw, old, names):
    new = dict(old)
    if old["name"] != "R" and seldom(draw):
        new["name"] = old["name"].lower()
        if draw(st.booleans()):
            new["aliases"] = [old["name"]]
    if old["type"] == "enum":
        if seldom(draw, 3):
            new["symbols"] = draw(st.sampled_from([["X"], ["Y", "X"], list("XYZW")]))
        if seldom(draw, 3):
            new["default"] = new["symbols"][0]
    elif old["type"] == "fixed":
        new["size"] = old["size"] + seldom(draw)
    else:
        # Only what was defined before a name can be within it.
        within = names[: names.index(old["name"])] if old["name"] in names else names
        new["fields"] = draw(change_fields(old["fields"], within))
    return new


@st.composite
def change_fields(draw, fields, names):
    found = []
    for field in fields:
        kept = {"name": field["name"], "type": draw(change_type(field["type"], names))}
        what = draw(st.integers(1, 12))
        if what == 1:
            continue
        if what in (2, 3):
            kept["name"] += "_new"
            if what == 2:
                kept["aliases"] = [field["name"]]
        found.append(kept)
    if seldom(draw, 3):
        schema, default, _ = draw(st.sampled_from(DEFAULTS))
        more = {"name": "extra", "type": schema}
        found.append(more if seldom(draw) else {**more, "default": default})
    if seldom(draw) and len(fields) > 1:
        found.append({"name": "both", "type": "int", "aliases": list(NAMES[:2])})
    return draw(st.permutations(found)) if found else []


@st.composite
def change_type(draw, schema, names):
    if not seldom(draw, 3):
        if isinstance(schema, dict):
            key = "items" if schema["type"] == "array" else "values"
            return {**schema, key: draw(change_type(schema[key], names))}
        return schema
    if isinstance(schema, list):
        return draw(st.permutations(schema))[: draw(st.integers(1, 3))]
    other = draw(any_type(names, 1))
    wider = [new for old, new in PROMOTIONS if old == schema]
    if wider and draw(st.booleans()):
        return draw(st.sampled_from(wider))
    if not isinstance(other, list) and branch_key(other) != branch_key(schema):
        return draw(st.permutations([schema, other]))
    return other


def definitions(schema, found=None):
    """Return what names stand for, by walking a schema."""
    found = {} if found is None else found
    if isinstance(schema, list):
        for branch in schema:
            definitions(branch, found)
    elif isinstance(schema, dict):
        if "name" in schema:
            found[schema["name"]] = schema
        for inner in (
            *(field["type"] for field in schema.get("fields", ())),
            *(schema[key] for key in ("items", "values") if key in schema),
        ):
            definitions(inner, found)
    return found


def covering(schema, named):
    """Return values that have every branch and every symbol at least once.

    A union's value is (index of the branch, value).
    """
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        return [
            (index, value)
            for index, branch in enumerate(schema)
            for value in covering(branch, named)
        ]
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "array":
        return [[], covering(schema["items"], named)]
    if kind == "map":
        items = covering(schema["values"], named)
        return [{}, {f"k{index}": item for index, item in enumerate(items)}]
    if kind == "enum":
        return list(schema["symbols"])
    if kind == "fixed":
        return [b"ab"[: schema["size"]]]
    if kind == "record":
        columns = [covering(f["type"], named) for f in schema["fields"]]
        return [
            {
                field["name"]: column[row % len(column)]
                for field, column in zip(schema["fields"], columns, strict=True)
            }
            for row in range(max(map(len, columns), default=1))
        ]
    return {
        "null": [None],
        "boolean": [True, False],
        "int": [-(2**31), 16_777_217],
        "long": [2**63 - 1, -1],
        "float": [0.5, float("inf"), float("nan")],
        "double": [0.1, -0.0, float("nan")],
        "bytes": [b"", "é".encode()],  # as text too: else a promotion fails by value
        "string": ["", "é"],
    }[kind]


def write(schema, value, named):
    """Return the Avro body of a value."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        index, inner = value
        return zigzag(index) + write(schema[index], inner, named)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return b"".join(
            write(f["type"], value[f["name"]], named) for f in schema["fields"]
        )
    if kind == "array":
        items = b"".join(write(schema["items"], item, named) for item in value)
        return (zigzag(len(value)) + items if value else b"") + b"\0"
    if kind == "map":
        items = b"".join(
            write("string", key, named) + write(schema["values"], item, named)
            for key, item in value.items()
        )
        return (zigzag(len(value)) + items if value else b"") + b"\0"
    if kind == "enum":
        return zigzag(schema["symbols"].index(value))
    if kind == "string":
        value, kind = value.encode(), "bytes"
    return {
        "null": lambda: b"",
        "boolean": lambda: bytes([value]),
        "int": lambda: zigzag(value),
        "long": lambda: zigzag(value),
        "float": lambda: struct.pack("<f", value),
        "double": lambda: struct.pack("<d", value),
        "bytes": lambda: zigzag(len(value)) + value,
        "fixed": lambda: value,
    }[kind]()


def zigzag(number):
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


class Unreadable(Exception):
    """What the specification calls an error."""


class Resolver:
    """Turn a writer's value into the reader's, word for word as specified.

    Of the branches of a reader's union that match, the first is taken; with
    `exact_first` the one that is of the writer's own type, if there is one.
    """

    def __init__(self, pair, *, exact_first=False):
        self.exact_first = exact_first
        self.writers, self.readers = definitions(pair.writer), definitions(pair.reader)

    def matches(self, writer, reader):
        writer = self._of(writer, self.writers)
        reader = self._of(reader, self.readers)
        if isinstance(writer, list) or isinstance(reader, list):
            return True
        kinds = branch_key(writer), branch_key(reader)
        if kinds in (("array", "array"), ("map", "map")):
            key = "items" if kinds[0] == "array" else "values"
            return self.matches(writer[key], reader[key])
        if isinstance(writer, dict) and isinstance(reader, dict):
            named = "name" in writer and "name" in reader and kinds[0] == kinds[1]
            names = reader.get("name"), *reader.get("aliases", ())
            same_size = writer.get("size") == reader.get("size")
            return named and writer["name"] in names and same_size
        return kinds[0] == kinds[1] or kinds in PROMOTIONS

    def resolve(self, writer, reader, value):
        writer = self._of(writer, self.writers)
        reader = self._of(reader, self.readers)
        if isinstance(writer, list):
            index, inner = value
            return self.resolve(writer[index], reader, inner)
        if isinstance(reader, list):
            branches = [b for b in reader if self.matches(writer, b)]
            if self.exact_first:
                branches.sort(key=lambda b: self._kind(b) != branch_key(writer))
            if branches:
                return self.resolve(writer, branches[0], value)
            raise Unreadable
        if not self.matches(writer, reader):
            raise Unreadable
        kind, wanted = branch_key(writer), branch_key(reader)
        if kind == "array":
            return [self.resolve(writer["items"], reader["items"], v) for v in value]
        if kind == "map":
            types = writer["values"], reader["values"]
            return {key: self.resolve(*types, v) for key, v in value.items()}
        if kind == "record":
            return self._record(writer, reader, value)
        if kind == "enum" and value not in reader["symbols"]:
            if "default" not in reader:
                raise Unreadable
            return reader["default"]
        if wanted in ("float", "double") and kind in ("int", "long"):
            return float(value)
        if (kind, wanted) == ("string", "bytes"):
            return value.encode()
        return value.decode() if (kind, wanted) == ("bytes", "string") else value

    def _record(self, writer, reader, value):
        found, taken = {}, set()
        for target in reader["fields"]:
            names = target["name"], *target.get("aliases", ())
            sources = [f for f in writer["fields"] if f["name"] in names]
            # The specification leaves open which is meant.
            if len(sources) > 1 or taken & {f["name"] for f in sources}:
                raise Unreadable
            if sources:
                (source,) = sources
                taken.add(source["name"])
                types = source["type"], target["type"]
                found[target["name"]] = self.resolve(*types, value[source["name"]])
            elif "default" in target:
                found[target["name"]] = next(
                    value
                    for schema, default, value in DEFAULTS
                    if schema == target["type"] and default == target["default"]
                )
            else:
                raise Unreadable
        return found

    def _kind(self, schema):
        return branch_key(self._of(schema, self.readers))

    @staticmethod
    def _of(schema, named):
        return named.get(schema, schema) if isinstance(schema, str) else schema


def same(one, other):
    """Compare values with their types: 1 is not 1.0, NaN is NaN, 0.0 is not -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    return one == other
