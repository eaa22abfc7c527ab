"""Unrolls -> a table of one row a step, by environment within each record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from archive.columns import Column, Columns, from_buffer, group_field, is_plain
from archive.numbering import number_rows
from archive.placement import BEHAVIOUR, FLAGS, LOGITS, Key, Placed, Slots, place
from schemas.records import SourceRef, Unroll
from schemas.tensors import Array

TEXT = pa.dictionary(pa.int32(), pa.string())
TIME = pa.timestamp("ms", tz="UTC")
_LOGITS_TYPE = pa.list_(pa.float32())
_BEHAVIOUR_FIELDS = [
    *(pa.field(name, pa.float32()) for name in BEHAVIOUR),
    pa.field(LOGITS, _LOGITS_TYPE),
]


@dataclass(frozen=True, slots=True)
class PlacedUnroll:
    """An unroll whose tensors were opened as far as they have columns."""

    address: SourceRef
    appended_at_ms: int
    unroll: Unroll
    tensors: Sequence[Placed]
    arrays: dict[Key, Array]

    @classmethod
    def of(
        cls, address: SourceRef, appended_at_ms: int, unroll: Unroll, slots: Slots
    ) -> PlacedUnroll:
        """Open what goes to the steps."""
        tensors = place(unroll, slots)
        arrays = {(p.group, p.name): p.array for p in tensors if p.array is not None}
        for flag in FLAGS:
            if (flag, "") in arrays:  # other bytes than 0 and 1 are kept by record
                arrays[flag, ""] = arrays[flag, ""].view("|u1") != 0
        return cls(address, appended_at_ms, unroll, tensors, arrays)

    @property
    def num_rows(self) -> int:
        """T·B; 0: none of it is in the steps."""
        if not self.arrays:
            return 0
        return self.unroll.num_steps * self.unroll.num_envs

    @property
    def valid_rows(self) -> int:
        """Rows that are transitions."""
        valid = self.arrays.get(("valid", ""))
        return 0 if valid is None else int(valid.sum())

    @property
    def raw_bytes(self) -> int:
        """How much memory it takes."""
        return sum(placed.raw_bytes for placed in self.tensors)


def step_schema(columns: Columns) -> Any:
    """Return the schema of the steps of an archive."""
    fields = [
        pa.field("experiment", TEXT),
        pa.field("run_id", TEXT),
        pa.field("worker", TEXT),
        pa.field("incarnation", pa.int64()),
        pa.field("sequence", pa.int64()),
        pa.field("step", pa.int64()),
        pa.field("env", pa.int32()),
        pa.field("episode", pa.int64()),
        pa.field("policy_epoch", pa.int64()),
        pa.field("policy_version", pa.int64()),
        pa.field("produced_at", TIME),
        pa.field("topic", TEXT),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        group_field("observation", columns.observation),
        group_field("action", columns.action),
        pa.field("reward", pa.float64()),
        *(pa.field(flag, pa.bool_()) for flag in FLAGS),
        pa.field("behaviour", pa.struct(_BEHAVIOUR_FIELDS)),
    ]
    return pa.schema([field for field in fields if field is not None])


def step_table(unrolls: Sequence[PlacedUnroll], columns: Columns) -> Any:
    """Return the steps of ``unrolls``: each environment's T together, in time."""
    unrolls = [each for each in unrolls if each.num_rows]
    schema = step_schema(columns)
    if not unrolls:
        return schema.empty_table()
    found = {
        **_addresses(unrolls),
        "observation": _group("observations", columns.observation, unrolls),
        "action": _group("actions", columns.action, unrolls),
        "reward": _column(("rewards", ""), Column("", "<f8", ()), unrolls),
        **{flag: _column((flag, ""), Column("", "|b1", ()), unrolls) for flag in FLAGS},
        "behaviour": _behaviour(unrolls),
    }
    return pa.Table.from_arrays([found[name] for name in schema.names], schema=schema)


def texts(values: Sequence[str], counts: Sequence[int] | None = None) -> Any:
    """Return texts that come again and again, each ``counts`` times."""
    places: dict[str, int] = {}
    indices = np.array([places.setdefault(v, len(places)) for v in values], np.int32)
    repeated = indices if counts is None else np.repeat(indices, counts)
    return pa.DictionaryArray.from_arrays(
        from_buffer(pa.int32(), repeated, None), pa.array(list(places), pa.string())
    )


def _addresses(unrolls: Sequence[PlacedUnroll]) -> dict[str, Any]:
    """Return the columns that do not come from tensors."""
    counts = [each.num_rows for each in unrolls]

    def whole(kind: Any, values: list[int]) -> Any:
        dtype = np.int32 if kind == pa.int32() else np.int64
        return from_buffer(kind, np.repeat(np.array(values, dtype), counts), None)

    records = [each.unroll for each in unrolls]
    places = [each.address for each in unrolls]
    return {
        "experiment": texts([r.experiment for r in records], counts),
        "run_id": texts([r.run_id for r in records], counts),
        "worker": texts([r.worker for r in records], counts),
        "topic": texts([place.topic for place in places], counts),
        "incarnation": whole(pa.int64(), [r.incarnation for r in records]),
        "sequence": whole(pa.int64(), [r.sequence for r in records]),
        "policy_epoch": whole(pa.int64(), [r.policy.epoch for r in records]),
        "policy_version": whole(pa.int64(), [r.policy.version for r in records]),
        "produced_at": whole(TIME, [r.produced_at_ms for r in records]),
        "partition": whole(pa.int32(), [place.partition for place in places]),
        "offset": whole(pa.int64(), [place.offset for place in places]),
        "step": _concatenated(
            pa.int64(), [_steps(r.first_step, r) for r in records], np.int64
        ),
        "env": _concatenated(
            pa.int32(),
            [np.repeat(np.arange(r.num_envs), r.num_steps) for r in records],
            np.int32,
        ),
        "episode": _concatenated(
            pa.int64(), [_episodes(each) for each in unrolls], np.int64
        ),
    }


def _concatenated(kind: Any, arrays: list[Array], dtype: Any) -> Any:
    return from_buffer(kind, np.concatenate(arrays).astype(dtype, copy=False), None)


def _steps(first: int, unroll: Unroll) -> Array:
    return np.tile(np.arange(first, first + unroll.num_steps), unroll.num_envs)


def _episodes(each: PlacedUnroll) -> Array:
    ended = each.arrays["terminated", ""] | each.arrays["truncated", ""]
    return number_rows(ended, each.arrays["episodes", ""]).T.reshape(-1)


def _group(
    group: str, columns: Sequence[Column], unrolls: Sequence[PlacedUnroll]
) -> Any:
    if not columns:
        return None
    arrays = [_column((group, column.name), column, unrolls) for column in columns]
    if is_plain(columns):
        return arrays[0]
    fields = [column.field(column.name) for column in columns]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _column(key: Key, column: Column, unrolls: Sequence[PlacedUnroll]) -> Any:
    present = _present(key, unrolls)
    total = sum(each.num_rows for each in unrolls)
    make = np.empty if present is None else np.zeros
    rows: Array = make((total, *column.shape), column.dtype)
    _by_env(key, column.shape, unrolls, rows)
    return column.to_arrow(rows, present)


def _by_env(
    key: Key, shape: tuple[int, ...], unrolls: Sequence[PlacedUnroll], rows: Array
) -> None:
    """Write arrays [T, B, ...] to rows [N, ...], transposed to [B, T, ...]."""
    at = 0
    for each in unrolls:
        steps, envs = each.unroll.num_steps, each.unroll.num_envs
        if (array := each.arrays.get(key)) is not None:
            part = rows[at : at + each.num_rows].reshape(envs, steps, *shape)
            # A float that is a signalling NaN becomes a quiet double, with a warning.
            with np.errstate(invalid="ignore"):
                part[...] = array[:steps].swapaxes(0, 1)
        at += each.num_rows


def _present(key: Key, unrolls: Sequence[PlacedUnroll]) -> Array | None:
    """Return which rows have a value [N]; None: all."""
    present = [key in each.arrays for each in unrolls]
    if all(present):
        return None
    return np.repeat(present, [each.num_rows for each in unrolls])


def _behaviour(unrolls: Sequence[PlacedUnroll]) -> Any:
    number = Column("", "<f4", ())
    arrays = [_column(("behaviour", name), number, unrolls) for name in BEHAVIOUR]
    return pa.StructArray.from_arrays(
        [*arrays, _logits(unrolls)], fields=_BEHAVIOUR_FIELDS
    )


def _logits(unrolls: Sequence[PlacedUnroll]) -> Any:
    key = "behaviour", LOGITS
    found = [each.arrays.get(key) for each in unrolls]
    sizes = [0 if array is None else array.shape[2] for array in found]
    lengths = np.repeat(sizes, [each.num_rows for each in unrolls])
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    parts = [array.swapaxes(0, 1).reshape(-1) for array in found if array is not None]
    values = np.concatenate(parts) if parts else np.empty(0, np.float32)
    present = _present(key, unrolls)
    valid = None
    if present is not None:
        valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(
        _LOGITS_TYPE,
        len(lengths),
        [valid, pa.py_buffer(offsets)],
        children=[from_buffer(pa.float32(), values, None)],
    )
