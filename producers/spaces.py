"""Gymnasium spaces <-> named fields: observations and actions travel by name.

A Dict's or Tuple's leaf is named by the path to it ("camera/left", "pair/0"), a plain
space's is "". Nothing is cast, transposed or one-hot encoded on the way.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from infra.errors import RollstreamError
from schemas.errors import SchemaError
from schemas.records import SpaceField
from schemas.tensors import Array, check_header, pack

Fields = Mapping[str, Array]
"""Arrays by field name."""

AnySpace = spaces.Space[Any]


class SpaceRefused(RollstreamError):
    """A space that cannot travel, or a value that is not of its space."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, "wrap the environment so that its spaces fit")


def describe(space: AnySpace) -> tuple[SpaceField, ...]:
    """Return the leaves of ``space``, in the order of their names.

    Raises:
        SpaceRefused: a leaf has no place on the wire; names the path to it.
    """
    leaves = sorted(_leaves(space, ""))
    return tuple(_describe_leaf(path, leaf) for path, leaf in leaves)


def _leaves(space: AnySpace, path: str) -> Iterator[tuple[str, AnySpace]]:
    children = list(_children(space, path))
    if not _is_nested(space):
        yield path, space
    for name, child in children:
        yield from _leaves(child, name)


def _is_nested(space: AnySpace) -> bool:
    return isinstance(space, spaces.Dict | spaces.Tuple)


def _children(space: AnySpace, path: str) -> Iterator[tuple[str, AnySpace]]:
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            # "a/b" beside {"a": {"b": ...}} would be one name for two leaves.
            if not isinstance(key, str) or not key or "/" in key:
                raise SpaceRefused(
                    f"{path or 'space'}: expected names without '/', found {key!r}"
                )
            yield f"{path}/{key}".lstrip("/"), child
    elif isinstance(space, spaces.Tuple):
        for index, child in enumerate(space.spaces):
            yield f"{path}/{index}".lstrip("/"), child


def _describe_leaf(path: str, space: AnySpace) -> SpaceField:
    if isinstance(space, spaces.Box):
        dtype = _dtype(path, space.dtype)
        low, high = pack(space.low), pack(space.high)
        return SpaceField(path, "box", dtype, tuple(space.shape), low=low, high=high)
    if isinstance(space, spaces.Discrete):
        dtype = _dtype(path, space.dtype)
        n, start = (int(space.n),), (int(space.start),)
        return SpaceField(path, "discrete", dtype, (), n=n, start=start)
    if isinstance(space, spaces.MultiDiscrete):
        return SpaceField(
            path,
            "multi_discrete",
            _dtype(path, space.dtype),
            tuple(space.shape),
            n=tuple(int(n) for n in space.nvec.flat),
            start=tuple(int(n) for n in space.start.flat),
        )
    if isinstance(space, spaces.MultiBinary):
        dtype = _dtype(path, space.dtype)
        return SpaceField(path, "multi_binary", dtype, tuple(space.shape))
    raise SpaceRefused(
        f"{path or 'space'}: expected Box, Discrete, MultiDiscrete, MultiBinary, Dict "
        f"or Tuple, found {type(space).__name__}"
    )


def _dtype(path: str, dtype: Any) -> str:
    try:
        tensor = pack(np.empty(0, dtype))
        check_header(tensor)
    except (SchemaError, TypeError) as exc:
        raise SpaceRefused(f"{path or 'space'}: {exc}") from exc
    return tensor.dtype


@dataclass(frozen=True)
class Structure:
    """How the values of a space nest, and its fields.

    Attributes:
        space: of one environment.
        fields: its leaves by name.
    """

    space: AnySpace
    fields: tuple[SpaceField, ...]

    @classmethod
    def of(cls, space: AnySpace) -> "Structure":
        """Return the structure of a space; raises SpaceRefused."""
        return cls(space, describe(space))

    def flatten(self, value: Any) -> dict[str, Any]:
        """Return a value's leaves by name; one element's or a batch's alike.

        Raises:
            SpaceRefused: a part of the value is missing.
        """
        if not _is_nested(self.space):
            return {"": value}
        return dict(_flatten(self.space, value, ""))

    def unflatten(self, leaves: Mapping[str, Any]) -> Any:
        """Return the nested value of leaves by name: the inverse of ``flatten``."""
        if not _is_nested(self.space):
            return leaves[""]
        names = {field.name for field in self.fields}
        if leaves.keys() != names:
            raise SpaceRefused(
                f"expected the fields {sorted(names)}, found {sorted(leaves)}"
            )
        return _unflatten(self.space, leaves, "")

    def empty(self, *lead: int) -> dict[str, Array]:
        """Return zeros of shape [*lead, ...] for each field."""
        return {
            field.name: np.zeros((*lead, *field.shape), field.dtype)
            for field in self.fields
        }

    def write(self, value: Any, batch: Fields, row: int) -> None:
        """Write one element's leaves into row ``row`` of each array of ``batch``.

        Raises:
            SpaceRefused: a leaf has another shape, or would lose its kind (a float
                in a field of integers).
        """
        for name, leaf in self.flatten(value).items():
            array, target = np.asarray(leaf), batch[name]
            if array.shape != target.shape[1:] or not np.can_cast(
                array.dtype, target.dtype, "same_kind"
            ):
                raise SpaceRefused(
                    f"{name or 'value'}: expected {target.dtype}"
                    f"{list(target.shape[1:])}, found {array.dtype}{list(array.shape)}"
                )
            target[row] = array


def _flatten(space: AnySpace, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not _is_nested(space):
        yield path, value
        return
    for name, child in _children(space, path):
        key = name.rpartition("/")[2]
        try:
            part = value[key] if isinstance(space, spaces.Dict) else value[int(key)]
        except (KeyError, IndexError, TypeError) as exc:
            raise SpaceRefused(f"{name}: expected a value, found none") from exc
        yield from _flatten(child, part, name)


def _unflatten(space: AnySpace, leaves: Mapping[str, Any], path: str) -> Any:
    if not _is_nested(space):
        return leaves[path]
    parts = {
        name.rpartition("/")[2]: _unflatten(child, leaves, name)
        for name, child in _children(space, path)
    }
    return parts if isinstance(space, spaces.Dict) else tuple(parts.values())
