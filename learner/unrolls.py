"""Unrolls that wait to be learnt from -> one Sequences, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from learner.frame_stacks import Frames, Past
from learner.sample import Sequences
from learner.unroll_columns import UnrollRows
from schemas.tensors import Array


@dataclass(frozen=True, slots=True)
class Unroll:
    """An unroll that waits to be learnt from.

    Attributes:
        past: its place and reference.
        frames: its observations.
        rows: all else.
        num_valid: rows that the record calls valid.
        num_usable: rows that are learnt from, at least 1.
        version: of the policy that acted.
        acted_at_s: when its last row was done.
    """

    past: Past
    frames: Frames
    rows: UnrollRows
    num_valid: int
    num_usable: int
    version: float
    acted_at_s: float

    def restricted(self, usable: Array) -> Unroll:
        """Return the unroll with only those rows [T, B] of its own learnt from."""
        rows = self.rows
        usable = usable & rows.usable
        rows = replace(
            rows,
            usable=usable,
            returns=np.where(usable, rows.returns, rows.returns.dtype.type(0)),
            discounts=np.where(usable, rows.discounts, rows.discounts.dtype.type(0)),
            bootstrap_steps=np.where(usable, rows.bootstrap_steps, 0).astype(np.int32),
        )
        return replace(self, rows=rows, num_usable=int(np.count_nonzero(usable)))


def side_by_side(unrolls: list[Unroll], stack: int) -> Sequences:
    """Return unrolls as one: [L, N], L that of the longest, N all environments."""
    length = max(unroll.past.ref.num_steps for unroll in unrolls)
    rows = [unroll.rows for unroll in unrolls]
    observations = [unroll.frames.stacked(stack) for unroll in unrolls]
    num_columns = sum(unroll.past.ref.num_envs for unroll in unrolls)
    return Sequences(
        indices=np.full(num_columns, -1, np.int64),
        weights=np.ones(num_columns, np.float32),
        observations=_joined(observations, length + 1),
        actions=_joined([each.actions for each in rows], length),
        returns=_filled([each.returns for each in rows], length),
        discounts=_filled([each.discounts for each in rows], length),
        bootstrap_steps=_filled([each.bootstrap_steps for each in rows], length),
        valid=_filled([each.usable for each in rows], length),
        states={
            name: np.concatenate([each.states[name] for each in rows])
            for name in rows[0].states
        },
        behaviour={
            name: _repeated(
                [each.behaviour[name] for each in rows], length + (name == "value")
            )
            for name in rows[0].behaviour
        },
    )


def _joined(parts: Sequence[Mapping[str, Array]], length: int) -> dict[str, Array]:
    return {name: _repeated([p[name] for p in parts], length) for name in parts[0]}


def _repeated(parts: list[Array], length: int) -> Array:
    """Join [T, B, ...], the last row again where one is shorter.

    Zeros would not do: there may be no action 0.
    """
    at = np.arange(length)
    return np.concatenate(
        [p if len(p) == length else p[np.minimum(at, len(p) - 1)] for p in parts], 1
    )


def _filled(parts: list[Array], length: int) -> Array:
    """Join [T, B], zeros where one is shorter."""
    joined = _repeated(parts, length)
    column = 0
    for part in parts:
        joined[len(part) :, column : column + part.shape[1]] = 0
        column += part.shape[1]
    return joined
