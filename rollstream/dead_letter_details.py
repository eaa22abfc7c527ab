"""``rollstream dead-letters EXPERIMENT show``: one record, as far as it can be read."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import fastavro
from rich.console import Console

from infra.clock import now_ms
from infra.control.experiments import read_experiment
from infra.kafka.dead_letters import (
    Letter,
    NoOriginal,
    iterate_letters,
    read_letters,
    whole_value,
)
from infra.kafka.foreign_schemas import learn_schema
from infra.printable import printable
from infra.settings import Settings
from rollstream.ages import age
from rollstream.dead_letter_check import Refused, Usability
from rollstream.dead_letter_names import facts, find
from schemas.codec import MAGIC, decode_any
from schemas.errors import SchemaError, UnknownSchemaId
from schemas.registry import KnownSchema, Registry

HEAD_BYTES = 256
_HEADER_BYTES = 5
_WIDTH = 16
_PLAIN = {"string", "int", "long", "boolean"}
_FIELD = re.compile(r"/?(?P<field>\w+)[\w/\[\]]*: expected")


def show(settings: Settings, experiment: str, name: str, *, as_json: bool) -> None:
    """Print what can be said of one dead letter."""
    usability = Usability(settings, read_experiment(settings, experiment))
    (listed,) = find(read_letters(settings, experiment), [name])
    letter = next(
        each
        for each in iterate_letters(settings, experiment)
        if each.number == listed.number
    )
    found = facts(listed) | describe(settings, letter, usability)
    if as_json:
        print(json.dumps(found))
        return
    console = Console(highlight=False)
    head = found.pop("head")
    found["age"] = age(now_ms() - found.pop("appended_at_ms"))
    for key, value in found.items():
        line = f"{key:<14}{printable(_said(value))}"
        console.print(line, markup=False, soft_wrap=True)
    for line in head:
        console.print(line, markup=False, soft_wrap=True)


def describe(
    settings: Settings, letter: Letter, usability: Usability
) -> dict[str, Any]:
    """Return what the bytes say: header, schema, failing field, identity, head."""
    record = letter.record
    try:
        value, held = whole_value(settings, record), "whole"
    except NoOriginal as exc:
        value, held = record.value, exc.problem
    registry = usability.registry
    found: dict[str, Any] = {"value": held} | read_header(settings, value, registry)
    schema = _schema(found.get("schema_id"), registry)
    found["identity"] = read_identity(value, schema) if schema else {}
    try:
        decode_any(value, registry)
        found |= {"decodes": True, "problem": None, "field": None}
    except SchemaError as exc:
        field = failing_field(str(exc), schema)
        found |= {"decodes": False, "problem": str(exc), "field": field}
    try:
        if held != "whole":
            raise Refused(held)
        usability.check(record.source, value)
        found["reinjectable"] = True
    except Refused as exc:
        found["reinjectable"] = f"no: {exc.problem}"
    return found | {"head": hexdump(value[:HEAD_BYTES])}


def read_header(settings: Settings, value: bytes, registry: Registry) -> dict[str, Any]:
    """Return magic byte, schema id, and what is known of the schema."""
    if len(value) < _HEADER_BYTES:
        return {"magic": f"expected {_HEADER_BYTES} bytes, found {len(value)}"}
    if value[0] != MAGIC:
        return {"magic": f"expected {MAGIC}, found {value[0]}"}
    number = int.from_bytes(value[1:_HEADER_BYTES], "big")
    found: dict[str, Any] = {"magic": MAGIC, "schema_id": number}
    known = Registry()
    origin = "shipped"
    if _schema(number, known) is None:
        learn_schema(settings, registry, number)
        origin = "from the topic of schemas"
    schema = _schema(number, registry)
    if schema is None:
        return found | {"schema": None, "schema_known": "no"}
    return found | {"schema": schema.name, "schema_known": f"yes, {origin}"}


def _schema(number: int | None, registry: Registry) -> KnownSchema | None:
    try:
        return None if number is None else registry.by_id(number)
    except UnknownSchemaId:
        return None


def read_identity(value: bytes, schema: KnownSchema) -> dict[str, Any]:
    """Return the plain fields before the first that is not, or cannot be read.

    Of an unroll or batch: experiment, run, worker, incarnation, sequence and steps.
    """
    plain = []
    for field in schema.parsed["fields"]:
        if not isinstance(field["type"], str) or field["type"] not in _PLAIN:
            break
        plain.append(field)
    found: dict[str, Any] = {}
    body = io.BytesIO(value[_HEADER_BYTES:])
    for field in plain:
        try:
            read = fastavro.schemaless_reader(body, field["type"], None)
        except Exception:  # fastavro raises whatever its readers run into
            break
        found[field["name"]] = read
    return found


def failing_field(problem: str, schema: KnownSchema | None) -> str | None:
    """Return which field of the record an error of the codec speaks of."""
    match = _FIELD.search(problem)
    names = {f["name"] for f in schema.parsed["fields"]} if schema else set()
    return match["field"] if match and match["field"] in names else None


def hexdump(data: bytes) -> list[str]:
    """Return lines of 16 bytes: offset, hexadecimal, text."""
    lines = []
    for at in range(0, len(data), _WIDTH):
        part = data[at : at + _WIDTH]
        text = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * _WIDTH}} {text}")
    return lines


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items()) or "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
