"""A batch and the policy's head -> arrays from which no number can spoil a loss.

What an on-policy algorithm needs of whoever acted is recorded in each row, and never
worked out again with other weights: how probable the action was, what the state was
thought to be worth, the Gaussian's own sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from learner.algorithms.base import Actor
from learner.batch_arrays import BatchArrays, BatchMismatch
from schemas.records import SpaceField
from schemas.tensors import Array


@dataclass(frozen=True, slots=True)
class Columns:
    """What each unroll has to say of the policy that acted.

    Attributes:
        behaviour: shapes of one environment's, by name.
        states: recurrent ones, likewise.
    """

    behaviour: Mapping[str, tuple[int, ...]]
    states: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, actor: Actor, action: tuple[SpaceField, ...]) -> Columns:
        """Return what workers record who run an actor; see ``PolicyGraph.head``."""
        behaviour: dict[str, tuple[int, ...]] = {"log_prob": (), "value": ()}
        if actor.head == "gaussian":
            behaviour["sample"] = action[0].shape
        return cls(behaviour, {field.name: field.shape for field in actor.states})

    def check(self, arrays: BatchArrays) -> None:
        """Raise BatchMismatch unless all are there, as floats of these shapes."""
        num_steps, num_envs = arrays.valid.shape
        for name, shape in self.behaviour.items():
            steps = num_steps + (name == "value")
            expected = (steps, num_envs, *shape)
            _check(f"behaviour/{name}", arrays.behaviour.get(name), expected)
        for name, shape in self.states.items():
            expected = (num_envs, *shape)
            _check(f"states/{name}", arrays.states.get(name), expected)


def _check(path: str, found: Array | None, expected: tuple[int, ...]) -> None:
    wanted = f"{path}: expected float32{list(expected)} of the policy that acted"
    if found is None:
        raise BatchMismatch(f"{wanted}, found none")
    if found.shape != expected or found.dtype.kind != "f":
        raise BatchMismatch(f"{wanted}, found {found.dtype}{list(found.shape)}")


@dataclass(frozen=True, slots=True)
class UnrollRows:
    """The rows of an unroll but for observations, every number finite.

    Attributes:
        usable: [T, B] bool, the rows that can be learnt from.
        actions: by field name, [T, B, ...].
        returns: [T, B] float32.
        discounts: [T, B] float32, 0 to what has no value that could be counted on.
        bootstrap_steps: [T, B] int32.
        behaviour: ``value`` [T+1, B], others [T, B, ...], float32.
        states: [B, ...] float32.
    """

    usable: Array
    actions: Mapping[str, Array]
    returns: Array
    discounts: Array
    bootstrap_steps: Array
    behaviour: Mapping[str, Array]
    states: Mapping[str, Array]


def unroll_rows(arrays: BatchArrays, columns: Columns, known: Array) -> UnrollRows:
    """Return the rows of an unroll.

    A row is learnt from if it is valid, all its numbers are finite, its observation is
    known and what it bootstraps from is within the unroll. With recurrent states one
    that is not learnt from, or a state that is not finite, spoils its environment's
    rows up to the next reset: whoever learns would go on from a state of zeros there,
    with which nobody has acted.

    Args:
        arrays: which ``Columns.check`` has passed.
        columns: what to take of the behaviour.
        known: [T+1, B] bool, observations that are finite, all frames of them known.
    """
    num_steps, num_envs = arrays.valid.shape
    value_known = known & np.isfinite(arrays.behaviour["value"])
    usable = arrays.valid & value_known[:-1]
    for numbers in (arrays.returns, arrays.discounts, *arrays.actions.values()):
        usable &= _finite(numbers)
    for name in columns.behaviour.keys() - {"value"}:
        usable &= _finite(arrays.behaviour[name])
    ahead = arrays.bootstrap_steps
    ends = np.arange(num_steps)[:, None] + ahead
    usable &= (ahead >= 1) & (ends <= num_steps)
    if columns.states:
        finite = [_finite(arrays.states[name], lead=1) for name in columns.states]
        usable &= _states_known(np.all(finite, 0), arrays.valid, usable)
    ends = np.where(usable, ends, 0)
    bootstraps = value_known[ends, np.arange(num_envs)]
    return UnrollRows(
        usable=usable,
        actions={name: _cleaned(values) for name, values in arrays.actions.items()},
        returns=np.where(usable, arrays.returns, 0).astype(np.float32),
        discounts=np.where(usable & bootstraps, arrays.discounts, 0).astype(np.float32),
        bootstrap_steps=np.where(usable, ahead, 0).astype(np.int32),
        behaviour={n: _floats(arrays.behaviour[n]) for n in columns.behaviour},
        states={name: _floats(arrays.states[name]) for name in columns.states},
    )


def usable_at_random(arrays: BatchArrays, known: Array) -> Array:
    """Return the rows [T, B] that could be learnt from if a policy had acted."""
    usable: Array = arrays.valid & known[:-1] & (arrays.bootstrap_steps >= 1)
    usable &= np.isfinite(arrays.returns) & np.isfinite(arrays.discounts)
    return usable


def _states_known(first: Array, valid: Array, usable: Array) -> Array:
    """Return the rows [T, B] that a learner has the recurrent state of.

    That of row 0 where ``first`` [B], that behind a reset, and that behind a row which
    is usable and whose own is known.
    """
    known: Array = np.empty(valid.shape, np.bool_)
    known[0] = first
    for step in range(len(valid) - 1):
        known[step + 1] = ~valid[step] | (known[step] & usable[step])
    return known


def _finite(values: Array, lead: int = 2) -> Array:
    """Return where all numbers behind the first ``lead`` axes are finite."""
    if values.dtype.kind != "f":
        return np.ones(values.shape[:lead], np.bool_)
    finite = np.isfinite(values).reshape(*values.shape[:lead], -1)
    return np.asarray(finite.all(-1))


def _floats(values: Array) -> Array:
    return _cleaned(values.astype(np.float32, copy=False))


def _cleaned(values: Array) -> Array:
    """Return values with zeros for what is not finite: 0 * NaN is NaN in a loss."""
    if values.dtype.kind != "f":
        return values
    finite = np.isfinite(values)
    return values if finite.all() else np.where(finite, values, values.dtype.type(0))
