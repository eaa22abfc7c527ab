"""Unroll -> the columns that processors compute with, as arrays.

Observations stay closed. Only float ones that travel RAW are looked at, for values that
are not finite: a worker sends an unroll that holds any RAW.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.errors import SchemaError
from schemas.records import Unroll
from schemas.tensors import Tensor
from stream_processors.nstep import Bools, Floats

# What the behaviour expected of a state, and of the action taken in it.
_VALUE_COLUMNS = (("q_max", "q_taken"), ("value", "value"))


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of T consecutive steps.

    Attributes:
        rewards: [T, B], raw, finite where valid.
        terminated: [T, B].
        truncated: [T, B].
        valid: [T, B].
        finite: [T + 1, B], whether the observation is; None: all are.
        values: [T + 1, B] float32; None where the behaviour has none.
        taken: [T, B] float32, likewise.
        num_valid: number of valid rows.
    """

    rewards: Floats
    terminated: Bools
    truncated: Bools
    valid: Bools
    finite: Bools | None
    values: Floats | None
    taken: Floats | None
    num_valid: int

    def __len__(self) -> int:
        return len(self.rewards)


def open_rows(unroll: Unroll) -> Rows:
    """Return the columns of an unroll.

    Raises:
        SchemaError: a tensor cannot be opened, or the reward of a valid row is not
            finite.
    """
    rewards, valid = unroll.rewards.array(), unroll.valid.array()
    if not np.isfinite(rewards).all():
        bad = int((~np.isfinite(rewards) & valid).sum())
        if bad:
            raise SchemaError(
                f"rewards: expected finite numbers on valid rows, found {bad} others"
            )
    values, taken = _behaviour(unroll)
    return Rows(
        rewards=rewards,
        terminated=unroll.terminated.array(),
        truncated=unroll.truncated.array(),
        valid=valid,
        finite=_finite(unroll),
        values=values,
        taken=taken,
        num_valid=int(np.count_nonzero(valid)),
    )


def _behaviour(unroll: Unroll) -> tuple[Floats | None, Floats | None]:
    steps, envs = unroll.num_steps, unroll.num_envs
    for value, taken in _VALUE_COLUMNS:
        values = _floats(unroll.behaviour.get(value), (steps + 1, envs))
        if value == taken and values is not None:
            return values, values[:-1]
        found = _floats(unroll.behaviour.get(taken), (steps, envs))
        if values is not None and found is not None:
            return values, found
    return None, None


def _floats(tensor: Tensor | None, shape: tuple[int, int]) -> Floats | None:
    if tensor is None or tensor.shape != shape or tensor.dtype[1] != "f":
        return None
    return tensor.array().astype(np.float32, copy=False)


def _finite(unroll: Unroll) -> Bools | None:
    result: Bools | None = None
    for tensor in unroll.observations.values():
        if tensor.encoding != "RAW" or tensor.dtype[1] not in "fc":
            continue
        found = np.isfinite(tensor.array())
        if found.all():
            continue
        rows: Bools = np.all(found.reshape(*found.shape[:2], -1), axis=2)
        result = rows if result is None else np.logical_and(result, rows)
    return result


def join(parts: Sequence[Rows], limit: int) -> Rows:
    """Return consecutive rows as one, at most ``limit`` of them.

    A row where two parts meet has the first part's opinion of its observation's value:
    that of the policy which chose what led there.
    """
    if len(parts) == 1:
        return parts[0]
    return Rows(
        rewards=_concatenate([part.rewards for part in parts], limit),
        terminated=_concatenate([part.terminated for part in parts], limit),
        truncated=_concatenate([part.truncated for part in parts], limit),
        valid=_concatenate([part.valid for part in parts], limit),
        finite=_join_finite(parts, limit),
        values=_join_values(parts, limit),
        taken=parts[0].taken,
        num_valid=parts[0].num_valid,
    )


def _concatenate(columns: Sequence[npt.NDArray[Any]], limit: int) -> npt.NDArray[Any]:
    cut = []
    for column in columns:
        cut.append(column[:limit])
        limit -= len(cut[-1])
        if limit <= 0:
            break
    return np.concatenate(cut)


def _overlapping(columns: Sequence[npt.NDArray[Any]], limit: int) -> npt.NDArray[Any]:
    """Join columns of T + 1 rows whose last row is the next one's first."""
    return _concatenate(
        [columns[0], *(column[1:] for column in columns[1:])], limit + 1
    )


def _join_finite(parts: Sequence[Rows], limit: int) -> Bools | None:
    if all(part.finite is None for part in parts):
        return None
    return _overlapping(
        [
            np.ones((len(part) + 1, part.rewards.shape[1]), np.bool_)
            if part.finite is None
            else part.finite
            for part in parts
        ],
        limit,
    )


def _join_values(parts: Sequence[Rows], limit: int) -> Floats | None:
    if parts[0].values is None:
        return None
    return _overlapping(
        [
            np.full((len(part) + 1, part.rewards.shape[1]), np.nan, np.float32)
            if part.values is None
            else part.values
            for part in parts
        ],
        limit,
    )
