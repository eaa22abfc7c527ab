"""Described fields -> Gymnasium spaces again, and values by name <-> nested ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from infra.errors import RollstreamError
from schemas.records import SpaceField
from schemas.tensors import Array

AnySpace = spaces.Space[Any]
Tree = dict[str, Any]


class NoSuchSpace(RollstreamError):
    """A field that no Gymnasium space has, or a value that is not of its space."""


def rebuild(fields: Sequence[SpaceField]) -> AnySpace:
    """Return the space of which ``fields`` are the leaves.

    Names that are 0, 1, 2, ... make a Tuple: whether it was a Dict with such keys is
    not told by a description.

    Raises:
        NoSuchSpace: a field's kind is none of Gymnasium's, or two have one name.
    """
    if [field.name for field in fields] == [""]:
        return _leaf(fields[0])
    tree: Tree = {}
    for field in fields:
        *path, last = field.name.split("/")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
            if not isinstance(branch, dict):
                raise _twice(field)
        if branch.setdefault(last, field) is not field:
            raise _twice(field)
    return _nest(tree)


def _twice(field: SpaceField) -> NoSuchSpace:
    return NoSuchSpace(
        f"{field.name}: expected a name for each field, found two of one"
    )


def _nest(tree: Tree) -> AnySpace:
    children = {
        name: _nest(child) if isinstance(child, dict) else _leaf(child)
        for name, child in tree.items()
    }
    # By number: "10" sorts before "2".
    numbers = [str(index) for index in range(len(children))]
    if set(numbers) == children.keys():
        return spaces.Tuple([children[number] for number in numbers])
    return spaces.Dict(children)


def _leaf(field: SpaceField) -> AnySpace:
    dtype: Any = np.dtype(field.dtype)
    try:
        if field.kind == "box" and field.low is not None and field.high is not None:
            low, high = field.low.array(), field.high.array()
            return spaces.Box(low, high, field.shape, dtype.type)
        if field.kind == "discrete":
            return spaces.Discrete(field.n[0], start=field.start[0], dtype=dtype.type)
        if field.kind == "multi_discrete":
            n, start = (
                np.array(numbers, dtype).reshape(field.shape)
                for numbers in (field.n, field.start)
            )
            return spaces.MultiDiscrete(n, dtype.type, start=start)
        if field.kind == "multi_binary":
            # Of one dimension it is a number: a tuple of one is another space.
            is_flat = len(field.shape) == 1
            return spaces.MultiBinary(field.shape[0] if is_flat else field.shape)
    except (AssertionError, IndexError, TypeError, ValueError) as exc:
        raise NoSuchSpace(
            f"{field.name or 'space'}: expected a {field.kind} that Gymnasium can "
            f"make, found {exc}"
        ) from exc
    raise NoSuchSpace(
        f"{field.name or 'space'}: expected box, discrete, multi_discrete or "
        f"multi_binary, found {field.kind[:40]!r}"
    )


def nest(space: AnySpace, leaves: Mapping[str, Array], path: str = "") -> Any:
    """Return leaves by name as dicts and tuples, as ``space`` nests."""
    if isinstance(space, spaces.Dict):
        return {
            name: nest(child, leaves, f"{path}/{name}".lstrip("/"))
            for name, child in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            nest(child, leaves, f"{path}/{index}".lstrip("/"))
            for index, child in enumerate(space.spaces)
        )
    return leaves[path]


def unnest(value: Any, fields: Sequence[SpaceField], num_rows: int) -> dict[str, Array]:
    """Return nested values [N, ...] by name, of the fields' dtypes and shapes.

    Raises:
        NoSuchSpace: a part is missing, or is not of its field.
    """
    return {field.name: _part(value, field, num_rows) for field in fields}


def _part(value: Any, field: SpaceField, num_rows: int) -> Array:
    part = value
    try:
        for name in field.name.split("/") if field.name else ():
            part = part[int(name) if isinstance(part, tuple) else name]
        array = np.asarray(part)
    except (IndexError, KeyError, TypeError, ValueError) as exc:
        raise NoSuchSpace(f"{field.name}: expected a value, found none") from exc
    expected = num_rows, *field.shape
    if array.shape != expected or not np.can_cast(
        array.dtype, field.dtype, "same_kind"
    ):
        raise NoSuchSpace(
            f"{field.name or 'value'}: expected {field.dtype}{list(expected)}, found "
            f"{array.dtype}{list(array.shape)}"
        )
    return array.astype(field.dtype, copy=False)
