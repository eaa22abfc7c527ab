"""Behaviour values and n-step returns -> priorities |TD error| + eps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stream_processors.nstep import NStep, at_bootstrap

Floats = npt.NDArray[np.floating[Any]]


def td_priorities(
    found: NStep, values: Floats | None, taken: Floats | None, epsilon: float
) -> npt.NDArray[np.float32]:
    """Return |Gₜ + discountₜ V(sₜ₊ₘ) - Q(sₜ, aₜ)| + eps of the T rows, [T, B].

    NaN where there is none: rows that are not valid, and where the behaviour recorded
    no value, or one that is not finite. It is unweighted, and alpha is not applied.

    Args:
        found: the n-step returns; behaviour values are of the same, scaled returns.
        values: [N + 1, B], what the behaviour expected at each row's observation
            (``q_max`` or ``value``); None: nothing.
        taken: [T, B], what it expected of the action taken (``q_taken`` or ``value``).
        epsilon: added, so that no priority is 0.
    """
    none = np.full(found.returns.shape, np.nan, np.float32)
    if values is None or taken is None:
        return none
    with np.errstate(invalid="ignore", over="ignore"):
        expected = np.where(
            found.discounts > 0.0,
            found.discounts * at_bootstrap(values, found.bootstrap_steps),
            np.float32(0.0),
        )
        errors = np.abs(found.returns + expected - taken) + np.float32(epsilon)
    usable = np.isfinite(errors) & (found.bootstrap_steps > 0)
    return np.where(usable, errors, none).astype(np.float32, copy=False)
