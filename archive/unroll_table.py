"""Records -> a table of one row a record: what is not by step, and every header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from archive.columns import from_buffer
from archive.placement import Placed
from archive.recorded import Recorded
from archive.step_table import TEXT, TIME, PlacedUnroll, texts
from schemas.records import StreamEnd, Unroll

UNROLL, STREAM_END = "unroll", "stream_end"

TENSOR = pa.struct(
    [
        pa.field("group", pa.string()),
        pa.field("name", pa.string()),
        pa.field("dtype", pa.string()),
        pa.field("shape", pa.list_(pa.int64())),
        pa.field("encoding", pa.string()),
        # Row T of what has T+1 rows, where the others are in the steps.
        pa.field("last", pa.binary()),
        # Of what has no column there, or one that would not give back the same bytes.
        pa.field("data", pa.binary()),
    ]
)
SCHEMA = pa.schema(
    [
        pa.field("kind", TEXT),
        pa.field("experiment", TEXT),
        pa.field("run_id", TEXT),
        pa.field("worker", TEXT),
        pa.field("topic", TEXT),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("incarnation", pa.int64()),
        pa.field("produced_at", TIME),
        pa.field("appended_at", TIME),
        # Of an unroll.
        pa.field("sequence", pa.int64()),
        pa.field("first_step", pa.int64()),
        pa.field("num_steps", pa.int32()),
        pa.field("num_envs", pa.int32()),
        pa.field("policy_epoch", pa.int64()),
        pa.field("policy_version", pa.int64()),
        pa.field("end_of_stream", pa.bool_()),
        pa.field("rows", pa.int64()),  # of the steps
        pa.field("tensors", pa.list_(TENSOR)),
        # Of a stream's end.
        pa.field("reason", pa.string()),
    ]
)


def unroll_table(records: Sequence[PlacedUnroll | Recorded]) -> Any:
    """Return the table of ``records``; a Recorded is a stream's end."""
    rows = [_Row(each) for each in records]
    found = {
        name: _column(name, kind, [getattr(row, name) for row in rows])
        for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)
    }
    return pa.Table.from_arrays(list(found.values()), schema=SCHEMA)


def _column(name: str, kind: Any, values: list[Any]) -> Any:
    if kind == TEXT:
        return texts(values)
    if kind == TIME:  # any 64 bits: not through dates, which end in the year 9999
        return from_buffer(TIME, np.array(values, np.int64), None)
    return pa.array(values, kind)


class _Row:
    """What the columns say of one record."""

    def __init__(self, each: PlacedUnroll | Recorded) -> None:
        record = each.unroll if isinstance(each, PlacedUnroll) else each.record
        self.kind = STREAM_END if isinstance(record, StreamEnd) else UNROLL
        self.experiment = record.experiment
        self.run_id = record.run_id
        self.worker = record.worker
        self.topic = each.address.topic
        self.partition = each.address.partition
        self.offset = each.address.offset
        self.incarnation = record.incarnation
        self.produced_at = record.produced_at_ms
        self.appended_at = each.appended_at_ms
        unroll = record if isinstance(record, Unroll) else None
        self.sequence = unroll and unroll.sequence
        self.first_step = unroll and unroll.first_step
        self.num_steps = unroll and unroll.num_steps
        self.num_envs = unroll and unroll.num_envs
        self.policy_epoch = unroll and unroll.policy.epoch
        self.policy_version = unroll and unroll.policy.version
        self.end_of_stream = unroll and unroll.end_of_stream
        self.rows = each.num_rows if isinstance(each, PlacedUnroll) else None
        self.tensors = (
            [_tensor(placed) for placed in each.tensors]
            if isinstance(each, PlacedUnroll)
            else None
        )
        self.reason = record.reason if isinstance(record, StreamEnd) else None


def _tensor(placed: Placed) -> dict[str, Any]:
    tensor = placed.tensor
    return {
        "group": placed.group,
        "name": placed.name,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "encoding": tensor.encoding,
        "last": placed.last,
        "data": tensor.data if placed.is_kept else None,
    }
