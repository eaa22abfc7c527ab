"""Records -> the parts of their Avro bytes, for the schemas of `schemas/avro`.

Hundreds of kilobytes of arrays are copied once, when the parts are joined, and what is
the same in every record is made once. Through dicts and fastavro it took three times
as long.
"""

from collections.abc import Callable
from functools import lru_cache
from operator import index
from struct import Struct, error
from typing import Any

from schemas.encodings import to_wire

Schema = Any
Put = Callable[[bytes], None]
Write = Callable[[Any, Put], None]

DOES_NOT_FIT = (ValueError, TypeError, AttributeError, OverflowError, error)

_DOUBLE = Struct("<d")
_FLOAT = Struct("<f")


def compile_writer(schema: Schema) -> Write:
    """Return a function that puts the parts of a record's bytes, in order.

    It raises one of DOES_NOT_FIT where a value does not fit its field; what was put by
    then is of no use.
    """
    return _compile(schema, {})


def _compile(schema: Schema, named: dict[str, Write]) -> Write:
    if isinstance(schema, str):
        return named[schema] if schema in named else _PRIMITIVES[schema]
    if isinstance(schema, list):
        empty, filled = schema  # no other union is in a schema of ours
        if empty != "null":
            raise ValueError(f"expected a union of null and one type, found {schema}")
        return _optional(_compile(filled, named))
    kind = schema["type"]
    if kind == "array":
        return _array(_compile(schema["items"], named))
    if kind == "map":
        return _map(_compile(schema["values"], named))
    if kind == "enum":
        write = named[schema["name"]] = _enum(schema["symbols"])
        return write
    if kind != "record":
        return _compile(kind, named)
    fields = [(f["name"], _compile(f["type"], named)) for f in schema["fields"]]
    is_tensor = schema["name"].endswith("Tensor")
    write = named[schema["name"]] = _tensor(fields) if is_tensor else _record(fields)
    return write


def _record(fields: list[tuple[str, Write]]) -> Write:
    def write(value: Any, put: Put) -> None:
        for name, write_field in fields:
            write_field(getattr(value, name), put)

    return write


def _tensor(fields: list[tuple[str, Write]]) -> Write:
    """A record whose first fields are few and come again and again."""
    *head, (_, write_data) = fields
    has_codec = any(name == "codec" for name, _ in head)

    @lru_cache(maxsize=1024)
    def put_together(dtype: str, shape: tuple[int, ...], encoding: str) -> bytes:
        values = {"dtype": dtype, "shape": shape, "encoding": encoding}
        if has_codec:
            values["encoding"], values["codec"] = to_wire(encoding)
        parts: list[bytes] = []
        for name, write_field in head:
            write_field(values[name], parts.append)
        return b"".join(parts)

    def write(value: Any, put: Put) -> None:
        put(put_together(value.dtype, value.shape, value.encoding))
        write_data(value.data, put)

    return write


def _optional(filled: Write) -> Write:
    def write(value: Any, put: Put) -> None:
        if value is None:
            put(_long(0))
        else:
            put(_long(1))
            filled(value, put)

    return write


def _array(item: Write) -> Write:
    def write(value: Any, put: Put) -> None:
        if count := len(value):
            put(_long(count))
            for each in value:
                item(each, put)
        put(_long(0))

    return write


def _map(item: Write) -> Write:
    def write(value: Any, put: Put) -> None:
        if count := len(value):
            put(_long(count))
            for key, each in value.items():
                _write_string(key, put)
                item(each, put)
        put(_long(0))

    return write


def _enum(symbols: list[str]) -> Write:
    return lambda value, put: put(_long(symbols.index(value)))


def _long(number: int, bits: int = 64) -> bytes:
    """Return a zig-zag varint."""
    value = index(number)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"expected {bits} bits, found {value}")
    value = value << 1 if value >= 0 else ~(value << 1)
    if value < 0x80:  # most are
        return _BYTES[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_BYTES = [bytes([value]) for value in range(0x80)]


def _write_string(value: str, put: Put) -> None:
    _write_bytes(value.encode(), put)


def _write_bytes(value: bytes, put: Put) -> None:
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes, found {type(value).__name__}")
    put(_long(len(value)))
    put(value)


_PRIMITIVES: dict[str, Write] = {
    "string": _write_string,
    "bytes": _write_bytes,
    "int": lambda value, put: put(_long(value, 32)),
    "long": lambda value, put: put(_long(value)),
    "float": lambda value, put: put(_FLOAT.pack(value)),
    "double": lambda value, put: put(_DOUBLE.pack(value)),
    "boolean": lambda value, put: put(b"\1" if value else b"\0"),
}
