"""A decoded TransitionBatch -> its arrays, checked against the environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from schemas.records import EnvDescription, SpaceField, TransitionBatch
from schemas.tensors import Array, Tensor


class BatchMismatch(ValueError):
    """A well-formed batch that is not of this environment: dead-letter it."""


@dataclass(frozen=True, slots=True)
class BatchArrays:
    """What the buffer needs of a batch, opened.

    Attributes:
        observations: by field name, [T+1, B, ...].
        actions: by field name, [T, B, ...].
        valid: [T, B] bool.
        returns: [T, B] float32.
        discounts: [T, B] float32.
        bootstrap_steps: [T, B] int32.
        priorities: [T, B] float32, NaN where there are none.
        policy_version: of the policy that acted; NaN: none did.
        acted_at_s: when the last row was done, seconds since the epoch.
        states: recurrent state before row 0, by name, [B, ...]; only where asked for.
        behaviour: what the policy that acted said, by name: ``value`` [T+1, B], others
            [T, B, ...]; only where asked for.
    """

    observations: Mapping[str, Array]
    actions: Mapping[str, Array]
    valid: Array
    returns: Array
    discounts: Array
    bootstrap_steps: Array
    priorities: Array
    policy_version: float
    acted_at_s: float
    states: Mapping[str, Array] = field(default_factory=dict)
    behaviour: Mapping[str, Array] = field(default_factory=dict)


def open_batch(
    batch: TransitionBatch, env: EnvDescription, *, with_behaviour: bool = False
) -> BatchArrays:
    """Open the tensors that the buffer keeps.

    Args:
        batch: as decoded, so its tensors have the leading shapes of its docstring.
        env: whose fields it is to have.
        with_behaviour: open ``states`` and ``behaviour`` too.

    Raises:
        BatchMismatch: a field is missing, unknown, or of another shape or dtype.
        SchemaError: the bytes of a tensor do not make its array.
    """
    return BatchArrays(
        observations=_open_fields("observations", batch.observations, env.observation),
        actions=_open_fields("actions", batch.actions, env.action),
        valid=batch.valid.array(),
        returns=batch.returns.array(),
        discounts=batch.discounts.array(),
        bootstrap_steps=batch.bootstrap_steps.array(),
        priorities=batch.priorities.array(),
        policy_version=batch.policy.version if batch.policy.version >= 0 else np.nan,
        acted_at_s=batch.produced_at_ms / 1000,
        states=_open_all(batch.states) if with_behaviour else {},
        behaviour=_open_all(batch.behaviour) if with_behaviour else {},
    )


def _open_all(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: tensor.array() for name, tensor in tensors.items()}


def stored_dtype(space: SpaceField) -> np.dtype[np.generic]:
    """Return what a field is kept as: float64 is cast here, once, to float32."""
    dtype = np.dtype(space.dtype)
    return np.dtype(np.float32) if dtype == np.float64 else dtype


def _open_fields(
    what: str, tensors: Mapping[str, Tensor], fields: tuple[SpaceField, ...]
) -> dict[str, Array]:
    expected = {field.name: field for field in fields}
    if set(expected) != set(tensors):
        raise BatchMismatch(
            f"{what}: expected the fields {sorted(expected)}, found {sorted(tensors)}"
        )
    return {name: _open(what, tensors[name], field) for name, field in expected.items()}


def _open(what: str, tensor: Tensor, field: SpaceField) -> Array:
    path = f"{what}/{field.name}"
    if tensor.shape[2:] != field.shape or tensor.dtype != field.dtype:
        raise BatchMismatch(
            f"{path}: expected {field.dtype}[T, B, *{list(field.shape)}], found "
            f"{tensor.dtype}{list(tensor.shape)}"
        )
    array = tensor.array()
    if what == "actions" and field.kind == "discrete":
        _check_range(path, array, field)
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused so
        return array.astype(stored_dtype(field), copy=False)


def _check_range(path: str, array: Array, field: SpaceField) -> None:
    """Refuse actions that there are not: they are indices of an algorithm's values."""
    first = field.start[0] if field.start else 0
    last = first + field.n[0] - 1
    lowest, highest = int(array.min()), int(array.max())
    if lowest < first or highest > last:
        raise BatchMismatch(
            f"{path}: expected {first} to {last}, found {lowest} to {highest}"
        )
