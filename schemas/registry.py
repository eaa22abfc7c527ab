"""Schema ids, and the schemas that this process knows.

An id is computed from the schema itself, so nobody needs a service to agree on one: the
CRC-64-AVRO fingerprint of the parsing canonical form, read as a little-endian integer,
its lowest 31 bits.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas.bounds import compile_scan
from schemas.errors import SchemaError, UnknownSchemaId

_FILE = re.compile(r"^(?P<name>\w+)\.v(?P<version>\d+)\.avsc$")


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema, ready to use.

    Attributes:
        name: of its record, without the namespace.
        version: 1, 2, ... in the order they shipped.
        id: what the wire carries.
        text: the .avsc file.
        parsed: for fastavro.
        check_bounds: walks bytes from a position on; see ``bounds``.
    """

    name: str
    version: int
    id: int
    text: str
    parsed: Any
    check_bounds: Callable[[bytes, int], None]


def schema_id(schema: Any) -> int:
    """Return the id of a schema (JSON as Python values).

    Raises:
        SchemaError: the id would be 0, which clients take for "none".
    """
    canonical = to_parsing_canonical_form(fastavro.parse_schema(schema))
    digest = bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
    number = int.from_bytes(digest, "little") & 0x7FFFFFFF
    if number == 0:
        raise SchemaError("expected a schema whose id is not 0: rename a field")
    return number


def know(text: str, version: int) -> KnownSchema:
    """Parse the text of a schema.

    Raises:
        SchemaError: it is not a schema of one record, or cannot be read in bounds.
    """
    try:
        schema = json.loads(text)
        parsed: Any = fastavro.parse_schema(schema)
    except Exception as exc:  # fastavro raises half a dozen kinds
        raise SchemaError(f"expected an Avro schema, found {exc!r}") from exc
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SchemaError("expected a schema of a record")
    name = parsed["name"].rpartition(".")[2]
    return KnownSchema(
        name, version, schema_id(schema), text, parsed, compile_scan(parsed)
    )


class Registry:
    """The schemas this process can read: those shipped, and those added."""

    def __init__(self) -> None:
        self._by_id = {schema.id: schema for schema in shipped()}

    def add(self, text: str, version: int = 0) -> KnownSchema:
        """Learn a schema from the topic of schemas; the first text of an id wins."""
        schema = know(text, version)
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
