"""An Unroll's tensors -> which of them have a column of the steps, and which have not.

What has none is kept by record, as it came; so is what a column would not give back bit
for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from archive.columns import Column, Columns
from schemas.encodings import LOSSY
from schemas.errors import SchemaError
from schemas.records import Unroll
from schemas.shapes import VALUE_COLUMNS
from schemas.tensors import Array, Tensor, pack

FLAGS = ("terminated", "truncated", "valid")
SINGLES = ("rewards", *FLAGS, "episodes")
GROUPS = ("observations", "actions", *SINGLES, "states", "behaviour", "infos")
"""In the order of the record's fields."""

BEHAVIOUR = ("q_max", "q_taken", "value", "log_prob")
LOGITS = "logits"

Key = tuple[str, str]
"""A group and the name in it; "" in a group that is one tensor."""

Slots = Mapping[Key, Column]
"""Which tensors have a column, and which."""

_FLOAT = Column("", "<f4", ())
_SINGLE_SLOTS: dict[Key, Column] = {
    ("rewards", ""): Column("", "<f8", ()),
    ("episodes", ""): Column("", "<i8", ()),
    **{(flag, ""): Column("", "|b1", ()) for flag in FLAGS},
    **{("behaviour", name): _FLOAT for name in BEHAVIOUR},
}


def slots_of(columns: Columns) -> Slots:
    """Return the columns of the steps that tensors go to, but for the logits."""
    return {
        **{("observations", c.name): c for c in columns.observation},
        **{("actions", c.name): c for c in columns.action},
        **_SINGLE_SLOTS,
    }


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor, and where it goes.

    Attributes:
        group: the record's field.
        name: within it; "" of a field that is one tensor.
        tensor: it.
        array: opened, where it has a column of the steps.
        is_kept: whether its data is kept by record.
    """

    group: str
    name: str
    tensor: Tensor
    array: Array | None
    is_kept: bool

    @property
    def last(self) -> bytes | None:
        """Row T of what has T+1 rows, of which the steps have T."""
        if self.array is None or self.is_kept or not has_last(self.group, self.name):
            return None
        last: bytes = self.array[-1].tobytes()
        return last

    @property
    def raw_bytes(self) -> int:
        """How much memory it takes."""
        opened = 0 if self.array is None else self.array.nbytes
        return opened + (len(self.tensor.data) if self.is_kept else 0)


def has_last(group: str, name: str) -> bool:
    """Whether a tensor has a row for the observation after the last step."""
    return group == "observations" or (group == "behaviour" and name in VALUE_COLUMNS)


def place(unroll: Unroll, slots: Slots) -> list[Placed]:
    """Return the tensors of ``unroll`` in the order of the record.

    Where one that every step has cannot be opened, all are kept by record.
    """
    placed = [
        _place(group, name, tensor, slots) for (group, name), tensor in _each(unroll)
    ]
    if any(each.array is None for each in placed if each.group in SINGLES):
        return [Placed(p.group, p.name, p.tensor, None, True) for p in placed]
    return placed


def _each(unroll: Unroll) -> Iterator[tuple[Key, Tensor]]:
    for group in GROUPS:
        found = getattr(unroll, group)
        if isinstance(found, Tensor):
            yield (group, ""), found
        else:
            for name, tensor in found.items():
                yield (group, name), tensor


def _place(group: str, name: str, tensor: Tensor, slots: Slots) -> Placed:
    if not _fits(group, name, tensor, slots):
        return Placed(group, name, tensor, None, True)
    try:
        array = tensor.array()
    except SchemaError:  # nobody has opened it on its way
        return Placed(group, name, tensor, None, True)
    return Placed(group, name, tensor, array, not _comes_back(group, tensor, array))


def _fits(group: str, name: str, tensor: Tensor, slots: Slots) -> bool:
    if (group, name) == ("behaviour", LOGITS):
        return tensor.dtype == "<f4" and len(tensor.shape) == 3
    slot = slots.get((group, name))
    if slot is None:
        return False
    if group == "rewards":  # checked at decode: floats; as doubles they are the same
        return True
    return slot.takes(tensor, 1 if group == "episodes" else 2)


def _comes_back(group: str, tensor: Tensor, array: Array) -> bool:
    """Whether the column gives back the very bytes."""
    if tensor.dtype == "|b1" and array.view("|u1").max(initial=0) > 1:
        return False
    if group == "rewards" and tensor.dtype == "<f4" and np.isnan(array).any():
        return False
    if tensor.encoding in LOSSY:  # what is lost once is another image's to lose
        return False
    return tensor.encoding == "RAW" or pack(array, tensor.encoding) == tensor
