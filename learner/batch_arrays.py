"""A decoded TransitionBatch -> its arrays, checked against the environment."""

from collections.abc import Mapping
from dataclasses import dataclass

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


def open_batch(batch: TransitionBatch, env: EnvDescription) -> BatchArrays:
    """Open the tensors that the buffer keeps.

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
    )


def stored_dtype(field: SpaceField) -> np.dtype[np.generic]:
    """Return what a field is kept as: float64 is cast here, once, to float32."""
    dtype = np.dtype(field.dtype)
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
