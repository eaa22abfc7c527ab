"""Fields of spaces -> columns of Arrow, and arrays there and back, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.errors import SchemaError
from schemas.records import EnvDescription, SpaceField, Unroll
from schemas.tensors import Array, Tensor, checked_bytes

MAX_LIST = 256
"""Elements of a list; what is larger is a row of bytes: lists of pixels are slow."""

GROUPS = ("observation", "action")
ColumnsJson = dict[str, list[tuple[str, str, list[int]]]]
"""By group the name, dtype and shape of each column."""

_DTYPE, _SHAPE = b"dtype", b"shape"


@dataclass(frozen=True, slots=True)
class Column:
    """One leaf of a space as a column of one row a step.

    Attributes:
        name: the path to the leaf; "" for a plain space.
        dtype: as in Tensor.
        shape: of one element; at least one number is in it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers an element has."""
        return math.prod(self.shape)

    @property
    def is_bytes(self) -> bool:
        """Whether an element is a row of bytes, in C order."""
        return self.size > MAX_LIST or self.dtype.startswith("<c")

    @property
    def type(self) -> Any:
        """The column's Arrow type."""
        if self.is_bytes:
            return pa.binary(self.size * np.dtype(self.dtype).itemsize)
        number = pa.from_numpy_dtype(np.dtype(self.dtype))
        return pa.list_(number, self.size) if self.shape else number

    def field(self, name: str) -> Any:
        """Return the column's field; its metadata say what bytes are to be read as."""
        shape = ",".join(map(str, self.shape))
        metadata = {_DTYPE: self.dtype.encode(), _SHAPE: shape.encode()}
        return pa.field(name, self.type, metadata=metadata)

    def takes(self, tensor: Tensor, lead: int) -> bool:
        """Whether elements of ``tensor``, behind ``lead`` dimensions, are such."""
        return (tensor.dtype, tensor.shape[lead:]) == (self.dtype, self.shape)

    def to_arrow(self, rows: Array, present: Array | None) -> Any:
        """Return ``rows`` [N, ...] for Arrow; null where not ``present`` [N]."""
        if self.is_bytes or not self.shape:
            return from_buffer(self.type, rows, present)
        values = from_buffer(self.type.value_type, rows.reshape(-1), None)
        mask = None if present is None else pa.array(~present)
        return pa.FixedSizeListArray.from_arrays(values, type=self.type, mask=mask)

    def to_numpy(self, array: Any) -> Array:
        """Return the rows [N, ...] of an Arrow array; anything where it is null."""
        count = len(array)
        if self.is_bytes:
            width = self.type.byte_width
            data = array.buffers()[1]
            raw = np.frombuffer(data, "|u1", count * width, array.offset * width)
            return raw.view(self.dtype).reshape(count, *self.shape)
        if not self.shape:
            return numbers(array, self.dtype)
        start = array.offset * self.size
        values = array.values.slice(start, count * self.size)
        return numbers(values, self.dtype).reshape(count, *self.shape)


def from_buffer(kind: Any, values: Array, present: Array | None) -> Any:
    """Return a numpy array as an Arrow array of ``kind``, with its very bits."""
    if pa.types.is_boolean(kind):
        return pa.array(values, kind, mask=None if present is None else ~present)
    valid = None
    if present is not None:
        valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    data = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(data), [valid, pa.py_buffer(data)])


def numbers(array: Any, dtype: str) -> Array:
    """Return the numbers of an Arrow array, and anything where it is null."""
    if pa.types.is_boolean(array.type):
        filled = array.fill_null(False) if array.null_count else array
        found: Array = filled.to_numpy(zero_copy_only=False)
        return found
    itemsize = np.dtype(dtype).itemsize
    data = array.buffers()[1]
    return np.frombuffer(data, dtype, len(array), array.offset * itemsize)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of an archive that follow its environment's spaces.

    A field that has none (it is empty, or its name is) is kept by record.
    """

    observation: tuple[Column, ...]
    action: tuple[Column, ...]

    @classmethod
    def of_env(cls, env: EnvDescription) -> Columns:
        """Return the columns of what a worker found."""
        return cls(_of_fields(env.observation), _of_fields(env.action))

    @classmethod
    def of_unroll(cls, unroll: Unroll) -> Columns:
        """Return the columns that take the arrays of ``unroll``."""
        return cls(_of_tensors(unroll.observations), _of_tensors(unroll.actions))

    def to_json(self) -> ColumnsJson:
        """Return them as JSON values."""
        return {
            group: [(c.name, c.dtype, list(c.shape)) for c in columns]
            for group, columns in zip(
                GROUPS, (self.observation, self.action), strict=True
            )
        }

    @classmethod
    def from_json(cls, value: ColumnsJson) -> Columns:
        """Return what ``to_json`` was of.

        Raises:
            SchemaError: a column is of no type that a tensor has.
        """
        return cls(*(_from_json(value.get(group, [])) for group in GROUPS))


def is_plain(columns: Sequence[Column]) -> bool:
    """Whether it is one column, and no struct of them."""
    return [column.name for column in columns] == [""]


def group_field(name: str, columns: Sequence[Column]) -> Any:
    """Return the field of an observation or action; None where there is no column."""
    if not columns:
        return None
    if is_plain(columns):
        return columns[0].field(name)
    return pa.field(name, pa.struct([c.field(c.name) for c in columns]))


def _from_json(found: list[tuple[str, str, list[int]]]) -> tuple[Column, ...]:
    columns = tuple(Column(name, dtype, tuple(shape)) for name, dtype, shape in found)
    for column in columns:
        if not checked_bytes(column.dtype, column.shape):
            raise SchemaError(f"{column}: expected a number in it, found none")
    return columns


def _of_fields(fields: Sequence[SpaceField]) -> tuple[Column, ...]:
    return _columns([Column(f.name, f.dtype, f.shape) for f in fields])


def _of_tensors(tensors: Any) -> tuple[Column, ...]:
    return _columns([Column(n, t.dtype, t.shape[2:]) for n, t in tensors.items()])


def _columns(found: list[Column]) -> tuple[Column, ...]:
    alone = len(found) == 1
    return tuple(c for c in found if c.size and (c.name or alone))
