"""Tables of an archive -> the records that they were made of, to the byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from archive.columns import Column, Columns, numbers
from archive.placement import GROUPS, LOGITS, SINGLES, Key, slots_of
from archive.recorded import Recorded
from archive.step_table import TIME
from archive.unroll_table import STREAM_END
from schemas.errors import SchemaError
from schemas.records import PolicyRef, SourceRef, StreamEnd, Unroll
from schemas.shapes import check_shapes
from schemas.tensors import Array, Tensor, checked_bytes, pack

_COLUMN_OF = {"observations": "observation", "actions": "action", "rewards": "reward"}


def restore(steps: Any, unrolls: Any, columns: Columns) -> Iterator[Recorded]:
    """Yield the records of one group of rows of each table.

    Raises:
        SchemaError: the tables do not go together, or hold no such records.
    """
    rows = StepRows(steps, columns)
    at = 0
    for row in _plain_times(unrolls).to_pylist():
        address = SourceRef(row["topic"], row["partition"], row["offset"])
        record: Unroll | StreamEnd
        if row["kind"] == STREAM_END:
            record = _stream_end(row)
        else:
            record = _unroll(row, rows, at)
            at += row["rows"]
            check_shapes(record)
        yield Recorded(address, row["appended_at"], record)
    if at != len(steps):
        raise SchemaError(f"expected {at} steps of these records, found {len(steps)}")


def _plain_times(table: Any) -> Any:
    """Return the table with milliseconds for times: dates end in the year 9999."""
    fields = [
        pa.field(field.name, pa.int64()) if field.type == TIME else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _stream_end(row: Mapping[str, Any]) -> StreamEnd:
    return StreamEnd(
        experiment=row["experiment"],
        run_id=row["run_id"],
        worker=row["worker"],
        incarnation=row["incarnation"],
        reason=row["reason"],
        produced_at_ms=row["produced_at"],
    )


def _unroll(row: Mapping[str, Any], rows: StepRows, at: int) -> Unroll:
    fields: dict[str, Any] = {name: {} for name in GROUPS if name not in SINGLES}
    for entry in row["tensors"]:
        tensor = _tensor(entry, row, rows, at)
        if entry["group"] in SINGLES:
            fields[entry["group"]] = tensor
        else:
            fields[entry["group"]][entry["name"]] = tensor
    return Unroll(
        experiment=row["experiment"],
        run_id=row["run_id"],
        worker=row["worker"],
        incarnation=row["incarnation"],
        sequence=row["sequence"],
        first_step=row["first_step"],
        num_steps=row["num_steps"],
        num_envs=row["num_envs"],
        policy=PolicyRef(row["policy_epoch"], row["policy_version"]),
        produced_at_ms=row["produced_at"],
        end_of_stream=row["end_of_stream"],
        **fields,
    )


def _tensor(
    entry: Mapping[str, Any], row: Mapping[str, Any], rows: StepRows, at: int
) -> Tensor:
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    if entry["data"] is not None:
        return Tensor(dtype, shape, entry["encoding"], entry["data"])
    checked_bytes(dtype, shape)
    steps, envs = row["num_steps"], row["num_envs"]
    key = entry["group"], entry["name"]
    found = rows.take(key, at, steps * envs, shape)
    by_env = found.reshape(envs, steps, *found.shape[1:])
    if entry["group"] == "episodes":
        return pack(by_env[:, 0])
    array = np.empty(shape, dtype)
    array[:steps] = by_env.swapaxes(0, 1)
    if entry["last"] is not None:
        last = np.frombuffer(entry["last"], dtype)
        array[steps:] = last.reshape(1, envs, *shape[2:])
    return pack(array, entry["encoding"])


class StepRows:
    """The columns of a table of steps as numpy arrays, each opened when asked for."""

    def __init__(self, table: Any, columns: Columns) -> None:
        self._table = table
        self._slots = slots_of(columns)
        self._plain = {
            group: [c.name for c in found] == [""]
            for group, found in (
                ("observations", columns.observation),
                ("actions", columns.action),
            )
        }
        self._arrays: dict[Key, Array] = {}
        self._logits: tuple[Array, Array] | None = None

    def take(self, key: Key, at: int, count: int, shape: tuple[int, ...]) -> Array:
        """Return ``count`` rows of a column from row ``at`` on, [count, ...]."""
        if at + count > len(self._table):
            raise SchemaError(
                f"expected {at + count} steps, found {len(self._table)} in the file"
            )
        if key == ("behaviour", LOGITS):
            offsets, values = self._read_logits()
            part = values[offsets[at] : offsets[at + count]]
            return part.reshape(count, *shape[2:])
        if key not in self._arrays:
            self._arrays[key] = self._read(key, self._slots[key])
        return self._arrays[key][at : at + count]

    def _read(self, key: Key, column: Column) -> Array:
        group, name = key
        if group == "episodes":
            return column.to_numpy(_whole(self._table.column("episode")))
        array = _whole(self._table.column(_COLUMN_OF.get(group, group)))
        if group == "behaviour" or not self._plain.get(group, True):
            array = _child(array, name)
        return column.to_numpy(array)

    def _read_logits(self) -> tuple[Array, Array]:
        if self._logits is None:
            array = _child(_whole(self._table.column("behaviour")), LOGITS)
            offsets = array.offsets.to_numpy()
            self._logits = offsets, numbers(array.values, "<f4")
        return self._logits


def _whole(chunked: Any) -> Any:
    """Return a column as one array."""
    if chunked.num_chunks == 1:
        return chunked.chunk(0)
    return pa.concat_arrays(chunked.chunks)


def _child(array: Any, name: str) -> Any:
    names = [field.name for field in array.type]
    return array.field(names.index(name))
