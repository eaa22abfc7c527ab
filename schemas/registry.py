"""Schema ids, and the schemas that this process knows.

An id is computed from the schema itself, so nobody needs a service to agree on one: the
CRC-64-AVRO fingerprint of the parsing canonical form, read as a little-endian integer,
its lowest 31 bits.

The canonical form has no defaults, aliases, docs or logical types, so two texts that
differ only there are one id. A writer's bytes are the same under both; what a reader
makes of them is not. Hence two rules: a reader takes its defaults and aliases from the
file that shipped with it, never from the topic; and of a schema that others wrote, only
the canonical form is used, so that whoever was first to publish a text for an id cannot
change what is read (a logical type would turn a number into a date). A change of
defaults, aliases or docs alone cannot be told from no change, and is refused.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas.bounds import compile_scan
from schemas.errors import SchemaError, UnknownSchemaId
from schemas.parsed import make_ready

MAX_TEXT = 512 << 10

_FILE = re.compile(r"^(?P<name>\w+)\.v(?P<version>\d+)\.avsc$")


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema, ready to use.

    Attributes:
        name: of its record, without the namespace.
        version: 1, 2, ... in the order they shipped.
        id: what the wire carries.
        text: the .avsc file, or what others published.
        parsed: ready for fastavro, see ``parsed``; of what others published, only the
            canonical form.
        check_bounds: walks bytes from a position on; see ``bounds``.
    """

    name: str
    version: int
    id: int
    text: str
    parsed: Any
    check_bounds: Callable[[bytes, int], None]


def canonical_form(schema: Any) -> str:
    """Return what the id of a schema stands for."""
    return str(to_parsing_canonical_form(fastavro.parse_schema(schema)))


def schema_id(schema: Any) -> int:
    """Return the id of a schema (JSON as Python values).

    Raises:
        SchemaError: the id would be 0, which clients take for "none".
    """
    digest = bytes.fromhex(fingerprint(canonical_form(schema), "CRC-64-AVRO"))
    number = int.from_bytes(digest, "little") & 0x7FFFFFFF
    if number == 0:
        raise SchemaError("expected a schema whose id is not 0: rename a field")
    return number


def know(text: str, version: int) -> KnownSchema:
    """Parse the text of a schema.

    Raises:
        SchemaError: it is not a schema of one record, or cannot be read in bounds.
    """
    if len(text) > MAX_TEXT:
        raise SchemaError(
            f"expected a schema of at most {MAX_TEXT} characters, found {len(text)}"
        )
    try:
        text.encode()  # half a surrogate pair cannot be published
        schema = load_json(text)
        parsed: Any = fastavro.parse_schema(schema)
    except Exception as exc:  # fastavro raises half a dozen kinds
        raise SchemaError(f"expected an Avro schema, found {exc!r}") from exc
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SchemaError("expected a schema of a record")
    check_bounds = compile_scan(parsed)  # first: what follows may recurse
    make_ready(parsed)
    name = parsed["name"].rpartition(".")[2]
    return KnownSchema(name, version, schema_id(schema), text, parsed, check_bounds)


def know_foreign(text: str, version: int = 0) -> KnownSchema:
    """Parse a text that others published; raises as ``know`` does."""
    schema = know(text, version)
    parsed: Any = fastavro.parse_schema(json.loads(canonical_form(load_json(text))))
    make_ready(parsed)
    return replace(schema, parsed=parsed)


def load_json(text: str) -> Any:
    """Return the JSON of a schema.

    Raises:
        SchemaError: it has what other parsers, or fastavro's, would stumble over.
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse_constant, object_hook=_refuse_marks)


def _refuse_constant(name: str) -> float:
    # Python reads NaN and Infinity; JSON has neither, and other parsers fail.
    raise SchemaError(f"expected a number that JSON has, found {name}")


def _refuse_marks(values: dict[str, Any]) -> dict[str, Any]:
    # fastavro takes a schema that says __fastavro_parsed for checked already.
    if marks := [key for key in values if key.startswith("__")]:
        raise SchemaError(f"expected keys without a leading __, found {marks[0]}")
    return values


class Registry:
    """The schemas this process can read: those shipped, and those added."""

    def __init__(self) -> None:
        self._by_id = {schema.id: schema for schema in shipped()}

    def add(self, text: str, version: int = 0) -> KnownSchema:
        """Learn a schema from the topic of schemas; the first text of an id wins."""
        schema = know_foreign(text, version)
        return self._by_id.setdefault(schema.id, schema)

    def by_id(self, number: int) -> KnownSchema:
        """Return the writer's schema.

        Raises:
            UnknownSchemaId: nobody told us of it.
        """
        try:
            return self._by_id[number]
        except KeyError:
            raise UnknownSchemaId(number) from None


@cache
def shipped() -> tuple[KnownSchema, ...]:
    """Every schema version that ever shipped, sorted by name and version."""
    found = []
    for file in files("schemas").joinpath("avro").iterdir():
        if match := _FILE.match(file.name):
            found.append(know(file.read_text("utf-8"), int(match["version"])))
    return tuple(sorted(found, key=lambda schema: (schema.name, schema.version)))


@cache
def newest(name: str) -> KnownSchema:
    """Return the newest shipped schema of a record."""
    return max(
        (schema for schema in shipped() if schema.name == name),
        key=lambda schema: schema.version,
    )
