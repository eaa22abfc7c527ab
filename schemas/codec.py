"""Records <-> bytes in the Confluent wire format.

Byte 0 is zero, then come the schema id (4 bytes, big-endian) and the Avro body.
"""

import io
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import fastavro

from schemas import records
from schemas.encodings import PLAIN, from_wire
from schemas.errors import SchemaError
from schemas.registry import KnownSchema, Registry, newest
from schemas.shapes import check_shapes
from schemas.tensors import Tensor
from schemas.writing import DOES_NOT_FIT, Write, compile_writer

MAGIC = 0
_HEADER = struct.Struct(">BI")
_SHIPPED = Registry()

Record = TypeVar("Record")


def encode(record: Any) -> bytes:
    """Return a record's bytes, written with the newest schema of its name.

    Raises:
        SchemaError: a value does not fit its field.
    """
    schema = newest(type(record).__name__)
    parts = [_HEADER.pack(MAGIC, schema.id)]
    try:
        _writer(schema.name)(record, parts.append)
        return b"".join(parts)
    except DOES_NOT_FIT as exc:
        raise SchemaError(f"{schema.name}: cannot be written: {exc}") from exc


def decode(
    data: bytes, *expected: type[Record], registry: Registry = _SHIPPED
) -> Record:
    """Return the record that ``data`` holds, as one of the ``expected`` types.

    Raises:
        UnknownSchemaId: the header is well formed, but names no schema we know.
        SchemaError: anything else is wrong; says what was expected and found.
    """
    schema = writer_schema(data, registry)
    by_name = {cls.__name__: cls for cls in expected}
    if schema.name not in by_name:
        raise SchemaError(f"expected {' or '.join(by_name)}, found {schema.name}")
    schema.check_bounds(data, _HEADER.size)
    reader = newest(schema.name)
    record = _build(reader.name)(_read(data, schema, reader))
    check_shapes(record)
    return record  # type: ignore[no-any-return]


def decode_or_none(data: bytes, *expected: type[Record]) -> Record | None:
    """Return the record as ``decode`` does; None for all that it refuses.

    For readers of what is only told: a record of another version, or of nobody we
    know, says nothing that they understand.
    """
    try:
        return decode(data, *expected)
    except SchemaError:
        return None


def decode_any(data: bytes, registry: Registry = _SHIPPED) -> Any:
    """Return whatever record of ours ``data`` holds; raises as ``decode`` does."""
    name = writer_schema(data, registry).name
    cls = getattr(records, name, None)
    if cls is None:
        raise SchemaError(f"expected a record of rollstream, found {name}")
    return decode(data, cls, registry=registry)


def writer_schema(data: bytes | None, registry: Registry = _SHIPPED) -> KnownSchema:
    """Return the schema that the header names; raises as ``decode`` does."""
    if not data or len(data) < _HEADER.size:
        raise SchemaError(
            f"expected a header of {_HEADER.size} bytes, found {len(data or b'')}"
        )
    magic, number = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise SchemaError(f"expected the first byte 0, found {magic}")
    return registry.by_id(number)


def _read(data: bytes, writer: KnownSchema, reader: KnownSchema) -> dict[str, Any]:
    body = io.BytesIO(data)
    body.seek(_HEADER.size)
    same = writer.id == reader.id
    try:
        return fastavro.schemaless_reader(  # type: ignore[return-value]
            body, writer.parsed, None if same else reader.parsed
        )
    except Exception as exc:  # fastavro raises whatever its readers run into
        raise SchemaError(f"{writer.name}: cannot be read: {exc!r}") from exc


@cache
def _writer(name: str) -> Write:
    """Compile dataclasses -> bytes for the newest schema of a name."""
    return compile_writer(newest(name).parsed)


@cache
def _build(name: str) -> Callable[[Any], Any]:
    """Compile dicts -> dataclasses for the newest schema of a name."""
    return _builder(newest(name).parsed, {})


def _builder(
    schema: Any, named: dict[str, Callable[[Any], Any]]
) -> Callable[[Any], Any]:
    if isinstance(schema, str):
        return named.get(schema, _same)
    if isinstance(schema, list):
        return _optional([_builder(branch, named) for branch in schema])
    kind = schema["type"]
    if kind == "map":
        item = _builder(schema["values"], named)
        return lambda value: {key: item(each) for key, each in value.items()}
    if kind == "array":
        item = _builder(schema["items"], named)
        return tuple if item is _same else lambda value: tuple(map(item, value))
    if kind == "record":
        build = named[schema["name"]] = _record_builder(schema, named)
        return build
    return _same


def _record_builder(
    schema: Any, named: dict[str, Callable[[Any], Any]]
) -> Callable[[Any], Any]:
    name = schema["name"].rpartition(".")[2]
    if name == "Tensor":
        return _tensor
    cls = getattr(records, name)
    builds = {f["name"]: _builder(f["type"], named) for f in schema["fields"]}
    inner = [(name, build) for name, build in builds.items() if build is not _same]

    def build(value: dict[str, Any]) -> Any:
        # Not in place: a default is the same object in every record that lacks it.
        return cls(**value | {name: make(value[name]) for name, make in inner})

    return build


def _tensor(value: dict[str, Any]) -> Tensor:
    encoding = from_wire(value["encoding"], value.get("codec", PLAIN))
    return Tensor(value["dtype"], tuple(value["shape"]), encoding, value["data"])


def _optional(branches: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    builds = [branch for branch in branches if branch is not _same]
    if not builds:
        return _same
    return lambda value: None if value is None else builds[0](value)


def _same(value: Any) -> Any:
    return value
