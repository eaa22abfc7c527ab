"""A schema as fastavro parsed it -> one that it reads with as the specification says.

Two things stand in the way: it hands a default to its readers as it stands in the text
(bytes come back as str, a record without its own defaults); and where a name that was
defined before meets a union, it fails to find the definition.
"""

import math
import sys
from collections.abc import Callable
from typing import Any

from schemas.compatibility import named_types
from schemas.errors import SchemaError

Schema = Any

_LARGEST = int(sys.float_info.max)


def make_ready(parsed: Schema) -> None:
    """Replace defaults by their values, and names by what they stand for.

    Args:
        parsed: not recursive; changed in place. A definition is shared by its uses.

    Raises:
        SchemaError: a default is not of its field's type; names the field.
    """
    named = named_types(parsed)
    for record in named.values():
        for field in record.get("fields", ()):
            if "default" in field:
                path = f"{record['name']}/{field['name']}"
                field["default"] = _value(field["type"], field["default"], path, named)
    for record in named.values():
        for field in record.get("fields", ()):
            field["type"] = _inlined(field["type"], named)


def _inlined(schema: Schema, named: dict[str, Schema]) -> Schema:
    if isinstance(schema, str):
        return named.get(schema, schema)
    if isinstance(schema, list):
        return [_inlined(branch, named) for branch in schema]
    for key in ("items", "values"):
        if key in schema:
            schema[key] = _inlined(schema[key], named)
    return schema


def _value(schema: Schema, default: Any, path: str, named: dict[str, Schema]) -> Any:
    if isinstance(schema, list):
        return _first_that_fits(schema, default, path, named)
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "array" and isinstance(default, list):
        return [_value(schema["items"], item, f"{path}/[]", named) for item in default]
    if kind == "map" and isinstance(default, dict):
        values = schema["values"]
        return {k: _value(values, v, f"{path}/[]", named) for k, v in default.items()}
    if kind in ("record", "error") and isinstance(default, dict):
        return _record(schema, default, path, named)
    if kind == "enum" and default in schema["symbols"]:
        return default
    if kind in ("bytes", "fixed") and isinstance(default, str | bytes):
        found = _bytes(default, path)
        if kind == "bytes" or len(found) == schema["size"]:
            return found
    elif kind in _PRIMITIVES and _PRIMITIVES[kind](default):
        return float(default) if kind in ("float", "double") else default
    raise SchemaError(f"{path}: expected a default of type {kind}, found {default!r}")


def _record(
    schema: Schema, default: dict[str, Any], path: str, named: dict[str, Schema]
) -> dict[str, Any]:
    names = {field["name"] for field in schema["fields"]}
    if unknown := default.keys() - names:
        raise SchemaError(f"{path}: expected fields of the record, found {unknown}")
    found = {}
    for field in schema["fields"]:
        name, where = field["name"], f"{path}/{field['name']}"
        if name not in default and "default" not in field:
            raise SchemaError(f"{where}: expected a value in the default, found none")
        found[name] = _value(
            field["type"], default.get(name, field.get("default")), where, named
        )
    return found


def _first_that_fits(
    branches: list[Schema], default: Any, path: str, named: dict[str, Schema]
) -> Any:
    for branch in branches:
        try:
            return _value(branch, default, path, named)
        except SchemaError:
            continue
    raise SchemaError(f"{path}: expected a default of the union, found {default!r}")


def _bytes(default: str | bytes, path: str) -> bytes:
    if isinstance(default, bytes):  # replaced before
        return default
    try:
        return default.encode("latin-1")
    except UnicodeEncodeError:
        raise SchemaError(
            f"{path}: expected characters up to \\u00ff in a default of bytes, found "
            f"{default!r}"
        ) from None


def _is_whole(bits: int) -> Callable[[Any], bool]:
    limit = 1 << (bits - 1)
    return lambda value: type(value) is int and -limit <= value < limit


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return abs(value) <= _LARGEST
    return type(value) is float and math.isfinite(value)


_PRIMITIVES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": _is_whole(32),
    "long": _is_whole(64),
    "float": _is_number,
    "double": _is_number,
    "string": lambda value: isinstance(value, str),
}
