"""Two schemas -> what keeps one from reading what the other wrote.

The rules are those of Avro's schema resolution, as fastavro carries them out: where a
union of the reader has several branches that match, the first one is taken.
"""

from dataclasses import dataclass
from typing import Any

from schemas.errors import SchemaError

Schema = Any

MAX_DEPTH = 64
_NAMED = ("record", "error", "enum", "fixed")
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_HARMLESS = (("int", "long"), ("float", "double"))


class IncompatibleSchema(SchemaError):
    """A schema that a subject refuses; names the field, what is expected and found."""


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One thing that keeps a reader from reading what a writer wrote.

    Attributes:
        path: of the field, as ``/policy/version``; ``[]`` is an item or a map's value.
        expected: what the reader's schema would need.
        found: what it has.
        new_symbols: the writer's enum has them, the reader's has not, nor a default.
    """

    path: str
    expected: str
    found: str
    new_symbols: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path or '/'}: expected {self.expected}, found {self.found}"


def check_upgrade(new: Schema, earlier: Schema) -> list[Incompatibility]:
    """Return why ``new`` may not follow ``earlier`` in a subject; empty: it may.

    1. The new schema reads what the earlier one wrote (BACKWARD).
    2. An enum that has no default in the earlier schema gets no further symbols: who
       reads with that schema could do nothing with them but bury good records.

    A field with no default may be left out, as BACKWARD allows; readers are upgraded
    before such a writer.

    Args:
        new: parsed by fastavro, as ``earlier``.
        earlier: one of the versions there are.
    """
    growth = [
        Incompatibility(
            problem.path,
            f"no symbols beyond {problem.found}, since that enum has no default for "
            "readers that do not know them",
            ", ".join(problem.new_symbols),
        )
        for problem in incompatibilities(reader=earlier, writer=new)
        if problem.new_symbols
    ]
    return incompatibilities(reader=new, writer=earlier) + growth


def incompatibilities(reader: Schema, writer: Schema) -> list[Incompatibility]:
    """Return what keeps ``reader`` from reading every value that ``writer`` writes.

    Two promotions depend on the value, as the specification has it: a long loses
    digits as a float or double, and bytes that are not UTF-8 cannot be read as string.

    Args:
        reader: parsed by fastavro: names are in full, and defined before they are used.
        writer: the same.

    Raises:
        SchemaError: one of them is nested deeper than MAX_DEPTH.
    """
    resolution = _Resolution(reader, writer)
    resolution.resolve(reader, writer, "", 0)
    return resolution.problems


class _Resolution:
    def __init__(self, reader: Schema, writer: Schema) -> None:
        self.problems: list[Incompatibility] = []
        self._readers = named_types(reader)
        self._writers = named_types(writer)
        self._seen: set[tuple[str, str]] = set()

    def resolve(self, reader: Schema, writer: Schema, path: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise SchemaError(f"{path}: expected a depth of at most {MAX_DEPTH}")
        reader = _definition(reader, self._readers)
        writer = _definition(writer, self._writers)
        if isinstance(writer, list):
            for branch in writer:
                self.resolve(reader, branch, path, depth + 1)
        elif isinstance(reader, list):
            self._resolve_union(reader, writer, path, depth)
        elif not self._matches(reader, writer):
            self._report(path, reader, writer)
        elif _kind(writer) in ("array", "map"):
            item = "items" if _kind(writer) == "array" else "values"
            self.resolve(reader[item], writer[item], f"{path}/[]", depth + 1)
        elif _kind(writer) in _NAMED:
            self._resolve_named(reader, writer, path, depth)

    def _resolve_union(
        self, reader: list[Schema], writer: Schema, path: str, depth: int
    ) -> None:
        branches = [_definition(branch, self._readers) for branch in reader]
        matching = [branch for branch in branches if self._matches(branch, writer)]
        if not matching:
            self._report(path, reader, writer)
            return
        # Resolution takes the first: a string is then read as bytes, a long as double.
        kind, taken = _kind(writer), _kind(matching[0])
        has_own = any(_kind(branch) == kind for branch in matching)
        if has_own and taken != kind and (kind, taken) not in _HARMLESS:
            expected = f"{kind} before {taken}, which is taken"
            self._add(path, expected, _describe(branches))
        self.resolve(matching[0], writer, path, depth + 1)

    def _resolve_named(
        self, reader: Schema, writer: Schema, path: str, depth: int
    ) -> None:
        pair = reader["name"], writer["name"]
        if pair in self._seen:  # being resolved, or was
            return
        self._seen.add(pair)
        if _kind(reader) != _kind(writer):
            self._report(path, reader, writer)
        elif _kind(writer) == "enum":
            self._resolve_enum(reader, writer, path)
        elif _kind(writer) != "fixed":
            self._resolve_fields(reader, writer, path, depth)

    def _resolve_enum(self, reader: Schema, writer: Schema, path: str) -> None:
        known = reader["symbols"]
        missing = tuple(symbol for symbol in writer["symbols"] if symbol not in known)
        if missing and not reader.get("default"):
            expected = f"the symbols {', '.join(missing)}, or a default"
            self.problems.append(
                Incompatibility(path, expected, ", ".join(known), missing)
            )

    def _resolve_fields(
        self, reader: Schema, writer: Schema, path: str, depth: int
    ) -> None:
        taken: dict[str, str] = {}
        for field in reader["fields"]:
            name, where = field["name"], f"{path}/{field['name']}"
            names = {name, *field.get("aliases", ())}
            sources = [each for each in writer["fields"] if each["name"] in names]
            if not sources and "default" not in field:
                expected = "a default, since the writer has no such field"
                self._add(where, expected, "none")
            # Libraries differ in which one they take, or fail.
            elif len(sources) > 1:
                found = " and ".join(source["name"] for source in sources)
                self._add(where, "one field of the writer, by name or alias", found)
            elif sources and sources[0]["name"] in taken:
                source = sources[0]["name"]
                expected = f"a field of the writer that is not read as {taken[source]}"
                self._add(where, expected, source)
            elif sources:
                taken[sources[0]["name"]] = name
                self.resolve(field["type"], sources[0]["type"], where, depth + 1)

    def _matches(self, reader: Schema, writer: Schema) -> bool:
        """Say whether two schemas match at the surface, which selects a branch."""
        reader = _definition(reader, self._readers)
        writer = _definition(writer, self._writers)
        if isinstance(reader, list) or isinstance(writer, list):
            return True
        kind, written = _kind(reader), _kind(writer)
        if kind in _NAMED and written in _NAMED:
            sizes = reader.get("size"), writer.get("size")
            return _same_name(reader, writer) and (
                kind != written or sizes[0] == sizes[1]
            )
        if kind == written == "array":
            return self._matches(reader["items"], writer["items"])
        if kind == written == "map":
            return self._matches(reader["values"], writer["values"])
        return kind == written or kind in _PROMOTIONS.get(written, ())

    def _report(self, path: str, reader: Schema, writer: Schema) -> None:
        expected = f"what reads {_describe(writer)}"
        self._add(path, expected, _describe(reader))

    def _add(self, path: str, expected: str, found: str) -> None:
        self.problems.append(Incompatibility(path, expected, found))


def named_types(schema: Schema) -> dict[str, Schema]:
    """Return the definitions in a parsed schema, by full name."""
    found: dict[str, Schema] = {}
    left = [schema]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            if each["type"] in _NAMED:
                found[each["name"]] = each
            left += [field["type"] for field in each.get("fields", ())]
            left += [each[key] for key in ("items", "values") if key in each]
    return found


def _definition(schema: Schema, named: dict[str, Schema]) -> Schema:
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Schema) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])


def _same_name(reader: Schema, writer: Schema) -> bool:
    full = writer["name"]
    short = full.rpartition(".")[2]
    aliases = reader.get("aliases", ())
    same = reader["name"].rpartition(".")[2] == short
    return same or full in aliases or short in aliases


def _describe(schema: Schema) -> str:
    if isinstance(schema, list):
        return f"a union of {', '.join(map(_describe, schema))}"
    kind = _kind(schema)
    if kind in _NAMED:
        size = f" of {schema['size']} bytes" if kind == "fixed" else ""
        return f"{kind} {schema['name']}{size}"
    if kind in ("array", "map"):
        item = schema["items" if kind == "array" else "values"]
        return f"{kind} of {item if isinstance(item, str) else _describe(item)}"
    return kind
