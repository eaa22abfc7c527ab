"""An action space -> actions at random, with their true log-probability."""

import math
from collections.abc import Sequence

import numpy as np

from schemas.records import SpaceField
from schemas.tensors import Array


def draw(
    fields: Sequence[SpaceField], lead: tuple[int, ...], rng: np.random.Generator
) -> tuple[dict[str, Array], Array]:
    """Draw actions for every field, as Gymnasium's ``sample`` distributes them.

    Bounded intervals uniformly, half-bounded ones exponentially from the bound,
    unbounded ones normally.

    Returns:
        actions by field name [*lead, ...] and their log-probability [*lead] float32
        (a density for fields of floats).
    """
    actions, log_prob = {}, np.zeros(lead)
    for field in fields:
        values, logs = _DRAW[field.kind](field, lead, rng)
        actions[field.name] = values
        log_prob += logs
    return actions, log_prob.astype(np.float32)


_Drawn = tuple[Array, Array | float]


def _discrete(
    field: SpaceField, lead: tuple[int, ...], rng: np.random.Generator
) -> _Drawn:
    n = np.reshape(field.n, field.shape)
    drawn = rng.integers(0, n, (*lead, *field.shape)) + np.reshape(
        field.start, field.shape
    )
    return drawn.astype(field.dtype), -float(np.log(n).sum())


def _binary(
    field: SpaceField, lead: tuple[int, ...], rng: np.random.Generator
) -> _Drawn:
    drawn = rng.integers(0, 2, (*lead, *field.shape), dtype=np.int8)
    return drawn.astype(field.dtype), -math.log(2) * math.prod(field.shape)


def _box(field: SpaceField, lead: tuple[int, ...], rng: np.random.Generator) -> _Drawn:
    assert field.low is not None and field.high is not None
    low, high = field.low.array(), field.high.array()
    shape, inner = (*lead, *field.shape), tuple(range(len(lead), len(lead + low.shape)))
    if np.issubdtype(low.dtype, np.integer):
        integers = rng.integers(low, high, shape, low.dtype, endpoint=True)
        spread = high.astype(np.float64) - low + 1
        return integers, -float(np.log(spread).sum())
    if low.dtype == np.bool_:
        choices = low.astype(np.int8), high.astype(np.int8)
        drawn = rng.integers(*choices, shape, np.int8, endpoint=True)
        return drawn.astype(np.bool_), -math.log(2) * int((low != high).sum())
    values, logs = _floats(low.astype(np.float64), high.astype(np.float64), shape, rng)
    # Rounding to the field's dtype may step over a bound: clip there.
    return values.astype(low.dtype).clip(low, high), logs.sum(axis=inner)


def _floats(
    low: Array, high: Array, shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[Array, Array]:
    below, above = np.isfinite(low), np.isfinite(high)
    normal, exponential = rng.standard_normal(shape), rng.standard_exponential(shape)
    lower, upper = np.where(below, low, 0.0), np.where(above, high, 0.0)
    width = np.where(below & above, upper - lower, 1.0)
    uniform = lower + width * rng.random(shape)
    cases = [
        below & above,
        np.broadcast_to(below, shape),
        np.broadcast_to(above, shape),
    ]
    values = np.select(
        cases, [uniform, lower + exponential, upper - exponential], normal
    )
    # A fixed coordinate (low = high) is certain: log 1.
    flat = -np.log(np.where(width > 0, width, 1.0))
    logs = np.select(
        cases,
        [np.broadcast_to(flat, shape), -exponential, -exponential],
        -0.5 * normal**2 - 0.5 * math.log(2 * math.pi),
    )
    return values, logs


_DRAW = {
    "discrete": _discrete,
    "multi_discrete": _discrete,
    "multi_binary": _binary,
    "box": _box,
}
