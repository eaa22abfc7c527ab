"""Rewards and flags of consecutive rows -> n-step returns and discounts.

Gₜ = Σ_{i<m} γⁱ rₜ₊ᵢ + discountₜ V(sₜ₊ₘ); m <= n; discountₜ = γᵐ, or 0 when terminated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class NStep:
    """What the T rows of an unroll are worth.

    Attributes:
        returns: [T, B] float32, discounted and scaled rewards of m steps.
        discounts: [T, B] float32, γᵐ with the last γ folded in; 0: no bootstrap.
        bootstrap_steps: [T, B] int32, m; 0 on rows that are not valid.
    """

    returns: npt.NDArray[np.float32]
    discounts: npt.NDArray[np.float32]
    bootstrap_steps: npt.NDArray[np.int32]


@dataclass(slots=True)
class _Horizon:
    """Every row looked at ``steps`` ahead; ``live``: the next step counts too."""

    steps: int
    returns: npt.NDArray[np.float64]
    taken: npt.NDArray[np.int32]
    ended: Bools
    live: Bools

    def first(self, rows: int) -> _Horizon:
        """Return a copy of the first ``rows`` rows."""
        return _Horizon(
            self.steps,
            self.returns[:rows].copy(),
            self.taken[:rows].copy(),
            self.ended[:rows].copy(),
            self.live[:rows].copy(),
        )


def n_step(
    rewards: Floats,
    terminated: Bools,
    truncated: Bools,
    valid: Bools,
    *,
    num_steps: int,
    n: int,
    gamma: float,
    reward_scale: float = 1.0,
    closed: bool = False,
    finite: Bools | None = None,
) -> NStep:
    """Return the n-step returns of the first ``num_steps`` (T) rows.

    m is n, or fewer steps: up to and with a termination (discount 0) or truncation; up
    to but not with a row that is not valid; up to the last row of a closed segment.
    Termination wins over truncation.

    Args:
        rewards: [N, B], raw, at rows 0, ..., N-1 of a segment; N >= T.
        terminated: [N, B].
        truncated: [N, B].
        valid: [N, B]; rewards elsewhere are not looked at.
        num_steps: T.
        n: the largest m, >= 1.
        gamma: discount per step.
        reward_scale: rewards are multiplied by it.
        closed: nothing follows row N-1 in this segment.
        finite: [N + 1, B], whether the observation at a row is finite; None: all are.
            What would bootstrap from one that is not gets discount 0.

    Raises:
        ValueError: not closed, and too few rows for the horizon of row T-1.
    """
    needed = num_steps + n - 1
    if len(rewards) < needed and not closed:
        raise ValueError(
            f"rows: expected {needed} for {num_steps} steps of {n}-step returns in an "
            f"open segment, found {len(rewards)}"
        )
    one = _one_step(
        rewards[:needed], terminated[:needed], truncated[:needed], valid[:needed]
    )
    total = _look_ahead(one, num_steps, n, gamma)
    powers = (gamma ** np.arange(n + 1)).astype(np.float32)
    powers[0] = 0.0
    discounts = powers.take(total.taken)
    discounts[total.ended] = 0.0
    if finite is not None:
        discounts[~at_bootstrap(finite, total.taken)] = 0.0
    with np.errstate(over="ignore"):  # beyond float32: infinite, for the learner to see
        returns = (total.returns * reward_scale).astype(np.float32)
    return NStep(returns, discounts, total.taken)


def at_bootstrap(
    values: npt.NDArray[Any], bootstrap_steps: npt.NDArray[np.int32]
) -> npt.NDArray[Any]:
    """Return ``values`` [N + 1, B] where each of T rows bootstraps from, [T, B]."""
    steps, envs = bootstrap_steps.shape
    own = np.arange(steps * envs).reshape(steps, envs)
    found: npt.NDArray[Any] = values.reshape(-1).take(own + bootstrap_steps * envs)
    return found


def _one_step(
    rewards: Floats, terminated: Bools, truncated: Bools, valid: Bools
) -> _Horizon:
    # That the next row is not valid shows when it is looked at: it adds no step.
    live = valid & ~terminated & ~truncated
    # The last row's next step is unknown, and either not needed or not there.
    live[-1] = False
    return _Horizon(
        1,
        np.where(valid, rewards, 0.0).astype(np.float64, copy=False),
        valid.astype(np.int32),
        terminated & valid,
        live,
    )


def _look_ahead(power: _Horizon, num_steps: int, n: int, gamma: float) -> _Horizon:
    """Put n steps together from the binary digits of n: log n passes.

    Differences of discounted sums would do as well, and lose small rewards next to
    large ones.
    """
    total: _Horizon | None = None
    while True:
        if n & power.steps:
            if total is None:
                total = power.first(num_steps)
            else:
                _extend(total, power, gamma)
        if total and 2 * power.steps > n:
            return total
        _extend(power, power, gamma)


def _extend(first: _Horizon, then: _Horizon, gamma: float) -> None:
    """Let ``first``, where it is live, look ``then.steps`` further; in place."""
    start = first.steps
    count = max(0, min(len(first.live), len(then.live) - start))
    # Rows whose next step is beyond the last row are not live: nothing to add there.
    live = first.live[:count]
    window = slice(start, start + count)
    first.returns[:count] += then.returns[window] * (live * gamma**start)
    first.taken[:count] += then.taken[window] * live
    first.ended[:count] |= then.ended[window] & live
    first.live[:count] = then.live[window] & live
    first.steps = start + then.steps
