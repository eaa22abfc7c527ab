"""Can an algorithm act in an environment? Pure."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from schemas.records import EnvDescription, SpaceField

# Their samples are squashed by tanh, and scaled to the bounds.
_NEED_BOUNDS = {"sac"}
_WORDS = {"discrete": "one discrete action", "box": "one box of floats"}


def action_problem(
    env: EnvDescription, algorithm: str, kinds: Iterable[str]
) -> str | None:
    """Return why an algorithm cannot fill the actions; None: it can.

    Args:
        env: the environment.
        algorithm: its name.
        kinds: those of one action field that it can fill.
    """
    kinds = tuple(kinds)
    if len(env.action) != 1 or _kind(env.action[0]) not in kinds:
        expected = " or ".join(_WORDS[kind] for kind in kinds)
        found = [f"{f.kind} {f.name!r} {f.dtype}{list(f.shape)}" for f in env.action]
        return (
            f"expected {expected} for {algorithm}, found "
            f"{', '.join(found) or 'none'} in {env.env_id}"
        )
    action = env.action[0]
    if algorithm in _NEED_BOUNDS and not has_bounds(action):
        return (
            f"expected finite bounds of the action for {algorithm}, low below high, "
            f"found {_bounds(action)} in {env.env_id}"
        )
    return None


def has_bounds(field: SpaceField) -> bool:
    """Whether each coordinate of a box has two finite bounds, low below high."""
    if field.low is None or field.high is None:
        return False
    low, high = field.low.array(), field.high.array()
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.all((low < high) & np.isfinite(high - low)))


def _kind(field: SpaceField) -> str:
    """Return a field's kind, or "" where no algorithm could fill it."""
    if field.kind == "discrete" and not field.shape:
        return "discrete"
    if field.kind == "box" and np.dtype(field.dtype).kind == "f":
        return "box" if min(field.shape, default=1) > 0 else ""
    return ""


def _bounds(field: SpaceField) -> str:
    if field.low is None or field.high is None:
        return "none"
    return f"{field.low.array().tolist()} to {field.high.array().tolist()}"
