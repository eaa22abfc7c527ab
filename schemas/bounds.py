"""A walk over Avro bytes before anything is decoded: counts, lengths and depth.

fastavro believes the counts it reads (5 bytes can ask for 100 million nulls) and
recurses without a limit; this walk allocates nothing and refuses first.
"""

from collections.abc import Callable
from typing import Any

from schemas.errors import SchemaError

Schema = Any
Scan = Callable[[bytes, int], int]

MAX_RECORD_BYTES = 16 << 20
MAX_ITEMS = 65_536
MAX_DEPTH = 16
MAX_NODES = 10_000
_FIXED_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def compile_scan(schema: Schema) -> Callable[[bytes, int], None]:
    """Return a check that bytes from a position on are one datum of ``schema``.

    Raises:
        SchemaError: the schema is recursive, nested deeper than MAX_DEPTH, or has more
            than MAX_NODES types, each use of a name counted.
    """
    if (nodes := _count(schema, {})) > MAX_NODES:
        raise SchemaError(f"expected at most {MAX_NODES} types, found {nodes}")
    scan = _compile(schema, {}, (), "")

    def check(data: bytes, start: int) -> None:
        if len(data) > MAX_RECORD_BYTES:
            raise SchemaError(
                f"expected at most {MAX_RECORD_BYTES} bytes, found {len(data)}"
            )
        end = scan(data, start)
        if end != len(data):
            raise SchemaError(
                f"expected the record to end at byte {end}, found {len(data) - end} "
                "trailing bytes"
            )

    return check


def _count(schema: Schema, named: dict[str, int], depth: int = 0) -> int:
    """Count types: names used in names, 16 deep, are more than can be walked."""
    if depth > 2 * MAX_DEPTH:  # unions count here, and have no path of their own
        raise SchemaError(f"expected a depth of at most {MAX_DEPTH}")
    if isinstance(schema, list):
        return 1 + sum(_count(branch, named, depth + 1) for branch in schema)
    if isinstance(schema, str):
        return named.get(schema, 1)
    inner = [field["type"] for field in schema.get("fields", ())]
    inner += [schema[key] for key in ("items", "values") if key in schema]
    nodes = 1 + sum(_count(each, named, depth + 1) for each in inner)
    if "name" in schema:
        named[schema["name"]] = nodes
    return nodes


def _compile(
    schema: Schema, named: dict[str, Schema], open_names: tuple[str, ...], path: str
) -> Scan:
    if path.count("/") > MAX_DEPTH:
        raise SchemaError(f"{path}: expected a depth of at most {MAX_DEPTH}")
    if isinstance(schema, list):
        return _union(
            [_compile(s, named, open_names, path + "/") for s in schema], path
        )
    if isinstance(schema, str):
        if schema not in named:
            return _primitive(schema, path)
        schema = named[schema]
    kind = schema["type"]
    if kind not in ("record", "enum", "fixed", "array", "map"):
        return _compile(kind, named, open_names, path)
    if kind in ("array", "map"):
        items = schema["items" if kind == "array" else "values"]
        item = _compile(items, named, open_names, path + "/[]")
        if kind == "array" and _may_be_empty(items, named):
            # Four bytes could ask for any number of them, one within the other.
            raise SchemaError(f"{path}: expected items that take a byte at least")
        return _blocks(item, kind == "map", path)
    name = schema["name"]
    if name in open_names:
        raise SchemaError(f"{path}: expected no recursion, found {name} within itself")
    named[name] = schema
    if kind == "enum":
        return _index(len(schema["symbols"]), path)
    if kind == "fixed":
        size = schema["size"]  # fastavro takes anything, also what leads backwards
        if type(size) is not int or size < 0:
            raise SchemaError(f"{path}: expected a size in bytes, found {size!r}")
        return _fixed(size, path)
    return _record(
        [
            _compile(f["type"], named, (*open_names, name), f"{path}/{f['name']}")
            for f in schema["fields"]
        ]
    )


def _may_be_empty(schema: Schema, named: dict[str, Schema]) -> bool:
    """Whether a datum can take no byte; ``schema`` is known to be in bounds."""
    if isinstance(schema, list):
        return False
    if isinstance(schema, str):
        return (
            schema == "null" or schema in named and _may_be_empty(named[schema], named)
        )
    kind = schema["type"]
    if kind == "record":
        return all(_may_be_empty(field["type"], named) for field in schema["fields"])
    if kind == "fixed":
        return bool(schema["size"] == 0)
    return kind not in ("enum", "array", "map") and _may_be_empty(kind, named)


def _primitive(name: str, path: str) -> Scan:
    if name in ("int", "long"):
        return lambda data, at: read_long(data, at, path)[1]
    if name in ("bytes", "string"):
        return _bytes(path)
    if name in _FIXED_BYTES:
        return _fixed(_FIXED_BYTES[name], path)
    raise SchemaError(f"{path}: expected an Avro type, found {name!r}")


def read_long(data: bytes, at: int, path: str = "") -> tuple[int, int]:
    """Read a zig-zag varint; return it and the position after it."""
    if at < len(data) and data[at] < 0x80:  # most are: twice as fast
        return (data[at] >> 1) ^ -(data[at] & 1), at + 1
    value = shift = 0
    for position in range(at, min(at + 10, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
    found = "the end" if len(data) < at + 10 else "more than 10 bytes"
    raise SchemaError(f"{path or '/'}: expected a number at byte {at}, found {found}")


def _fixed(size: int, path: str) -> Scan:
    def scan(data: bytes, at: int) -> int:
        if at + size > len(data):
            raise _short(path, size, len(data) - at)
        return at + size

    return scan


def _bytes(path: str) -> Scan:
    def scan(data: bytes, at: int) -> int:
        size, at = read_long(data, at, path)
        if size < 0 or at + size > len(data):
            raise _short(path, size, len(data) - at)
        return at + size

    return scan


def _short(path: str, expected: int, found: int) -> SchemaError:
    return SchemaError(f"{path}: expected {expected} bytes, found {found}")


def _index(count: int, path: str) -> Scan:
    def scan(data: bytes, at: int) -> int:
        index, at = read_long(data, at, path)
        if not 0 <= index < count:
            raise SchemaError(f"{path}: expected 0 to {count - 1}, found {index}")
        return at

    return scan


def _union(branches: list[Scan], path: str) -> Scan:
    def scan(data: bytes, at: int) -> int:
        index, at = read_long(data, at, path)
        if not 0 <= index < len(branches):
            raise SchemaError(
                f"{path}: expected a branch below {len(branches)}, found {index}"
            )
        return branches[index](data, at)

    return scan


def _blocks(item: Scan, keyed: bool, path: str) -> Scan:
    key = _bytes(path + "/key")

    def scan(data: bytes, at: int) -> int:
        total = 0
        while True:
            count, at = read_long(data, at, path)
            if count == 0:
                return at
            if count < 0:
                count = -count
                _, at = read_long(data, at, path)  # the block's size: not needed
            total += count
            if total > MAX_ITEMS:
                raise SchemaError(
                    f"{path}: expected at most {MAX_ITEMS} items, found {total}"
                )
            for _ in range(count):
                at = item(data, key(data, at) if keyed else at)

    return scan


def _record(fields: list[Scan]) -> Scan:
    def scan(data: bytes, at: int) -> int:
        for field in fields:
            at = field(data, at)
        return at

    return scan
