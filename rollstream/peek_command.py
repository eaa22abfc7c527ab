"""``rollstream peek``: records of any topic of ours, decoded readably."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from rich.console import Console

from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.foreign_schemas import decode_foreign
from infra.kafka.reading import (
    Message,
    offset_at_time,
    partitions_of,
    read_to_end,
    watermarks,
)
from infra.printable import printable
from infra.settings import Settings
from rollstream.errors import BadInput
from schemas.errors import SchemaError
from schemas.registry import Registry
from schemas.subjects import parse_registration
from schemas.tensors import Tensor
from schemas.topics import SCHEMAS, topic_name

FIRST_VALUES = 6
_SHOWN_BYTES = 48


class BadOffset(BadInput):
    """An offset on the command line that says nothing."""


def peek(
    settings: Settings,
    topic: str,
    offset: str,
    count: int,
    *,
    partition: int | None,
    as_json: bool,
) -> None:
    """Print ``count`` records from ``offset`` on, oldest first."""
    shown = 0
    console = Console(highlight=False)
    registry = Registry()

    def read(message: Message) -> Any:
        if message.topic == topic_name(SCHEMAS):
            return parse_registration(message.value)
        return decode_foreign(settings, registry, message.value)

    for message in _messages(settings, topic, offset, count, partition):
        if as_json:
            print(json.dumps(describe(message, read)))
        else:
            _print(console, describe(message, read))
        shown += 1
        if shown == count:
            return
    if shown == 0 and not as_json:
        console.print(f"{topic}: no record there", markup=False)


def _messages(
    settings: Settings, topic: str, offset: str, count: int, partition: int | None
) -> Iterator[Message]:
    found: list[Message] = []
    for number, start in _starts(settings, topic, offset, partition).items():
        for taken, message in enumerate(read_to_end(settings, topic, number, start)):
            if taken == count and not _is_relative(offset):
                break
            found.append(message)
    found.sort(key=lambda message: (message.timestamp_ms, message.partition))
    # The last N of all partitions are not the last N of each.
    yield from found[-_last(offset) :] if _is_relative(offset) else found


def _starts(
    settings: Settings, topic: str, offset: str, partition: int | None
) -> dict[int, int]:
    """Return where to start in each partition."""
    consumer = make_consumer(
        settings, group=None, client_id="peek", traffic=Traffic.CONTROL
    )
    with closing(consumer):
        partitions = partitions_of(consumer, topic, unknown_s=0.0)
        if partition is not None:
            if partition not in partitions:
                raise BadOffset(
                    f"partition: expected one of {partitions}, found {partition}"
                )
            partitions = [partition]
        spans = {number: watermarks(consumer, topic, number) for number in partitions}
        if offset.startswith("@"):
            at_ms = parse_time_ms(offset[1:])
            return offset_at_time(consumer, topic, at_ms, partitions)
    if _is_relative(offset):
        last = _last(offset)
        return {p: max(begin, end - last) for p, (begin, end) in spans.items()}
    if not offset.isdigit():
        raise BadOffset(f"offset: expected N, -N or @TIME, found {offset!r}")
    return {
        p: max(begin, int(offset))
        for p, (begin, end) in spans.items()
        if int(offset) <= end
    }


def parse_time_ms(text: str) -> int:
    """Return ISO 8601 with a zone as milliseconds since the epoch.

    Raises:
        BadOffset: not a time, or one without a zone, which would mean another moment
            on another machine.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError as exc:
        raise BadOffset(f"time: expected ISO 8601, found {text!r}") from exc
    if at.tzinfo is None:
        raise BadOffset(
            f"time: expected a zone, found none in {text!r}", "append Z or +02:00"
        )
    return int(at.timestamp() * 1000)


def _is_relative(offset: str) -> bool:
    return re.fullmatch(r"-\d+", offset) is not None


def _last(offset: str) -> int:
    return max(1, int(offset[1:]))


def describe(message: Message, read: Callable[[Message], Any]) -> dict[str, Any]:
    """Return a record as JSON-able values; one that ``read`` refuses with its error."""
    facts: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        "key": message.key,
        "bytes": len(message.value),
    }
    if message.tombstone:
        return {**facts, "record": None}
    try:
        record = read(message)
    except SchemaError as exc:
        head = message.value[:_SHOWN_BYTES].hex(" ")
        return {**facts, "error": str(exc), "first_bytes": head}
    return {**facts, "record": type(record).__name__, **_plain_fields(record)}


def _plain_fields(record: Any) -> dict[str, Any]:
    return {f.name: _plain(getattr(record, f.name)) for f in fields(record)}


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return describe_tensor(value)
    if is_dataclass(value):
        return _plain_fields(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return value


def describe_tensor(tensor: Tensor) -> str:
    """Return dtype, shape, encoding and the first values in a line."""
    head = f"{tensor.dtype}{list(tensor.shape)} {tensor.encoding}"
    try:
        array = tensor.array()
    except SchemaError as exc:
        return f"{head}: {exc}"
    values = array.ravel()[:FIRST_VALUES].tolist()
    shown = ", ".join(_short(value) for value in values)
    return f"{head} [{shown}{', ...' * (array.size > FIRST_VALUES)}]"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _print(console: Console, facts: dict[str, Any]) -> None:
    where = f"{facts['topic']}[{facts['partition']}] offset {facts['offset']}"
    console.print(f"{where}  {facts['record'] if 'record' in facts else 'undecodable'}")
    skipped = {"topic", "partition", "offset", "record"}
    for key, value in facts.items():
        if key not in skipped:
            _print_value(console, key, value, 1)


def _print_value(console: Console, key: str, value: Any, depth: int) -> None:
    pad = "  " * depth
    if isinstance(value, dict) and value:
        console.print(f"{pad}{printable(key)}", markup=False)
        for name, item in value.items():
            _print_value(console, name or '""', item, depth + 1)
        return
    line = printable(f"{key}: {value}")
    console.print(f"{pad}{line}", markup=False, soft_wrap=True)
