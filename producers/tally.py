"""Rows [T, B] -> how many can be learnt from, and what is wrong with the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from producers.episodes import Rows
from schemas.records import PolicyRef
from schemas.tensors import Array


@dataclass(frozen=True, slots=True)
class Tally:
    """How good a stream's rows are; resets count as neither.

    Attributes:
        usable: whose reward and observations are finite, before the step and after it;
            after the last of an episode nobody looks.
        unusable: that have no answer, or a number that is not finite.
        odd: in words, the first such number of the last unroll that has one; "".
        crashes: environments that raised or hung, each time.
        crash: why the first of them did; "".
        odd_answers: of policies, that had a number that is not finite.
        odd_answer: in words, the last policy that gave one; "".
    """

    usable: int = 0
    unusable: int = 0
    odd: str = ""
    crashes: int = 0
    crash: str = ""
    odd_answers: int = 0
    odd_answer: str = ""

    def plus(self, later: Tally) -> Tally:
        """Return both together."""
        return Tally(
            self.usable + later.usable,
            self.unusable + later.unusable,
            later.odd or self.odd,
            self.crashes + later.crashes,
            self.crash or later.crash,
            self.odd_answers + later.odd_answers,
            later.odd_answer or self.odd_answer,
        )


def tally(
    rows: Rows, is_reset: Array, observations: dict[str, Array], first_step: int
) -> Tally:
    """Judge T vector steps of B environments.

    Args:
        rows: [T, B] each.
        is_reset: [T, B], rows that begin an episode.
        observations: [T + 1, B, ...] by name.
        first_step: of row 0, within the stream.
    """
    usable = rows.valid
    for column in observations.values():
        if not _all_finite(column):
            finite = _finite_rows(column)
            usable = usable & finite[:-1] & (finite[1:] | rows.terminated)
    num_usable = int(np.count_nonzero(usable))
    num_unusable = usable.size - int(np.count_nonzero(is_reset)) - num_usable
    if num_unusable == 0:
        return Tally(num_usable)
    odd = _odd_reward(rows, is_reset, first_step) or _odd_observation(
        observations, first_step
    )
    return Tally(num_usable, num_unusable, odd)


def odd_answers(odd: Array, policy: PolicyRef) -> Tally:
    """Return what there is to say of a policy's answers, ``odd`` [T, B] of them."""
    num_odd = int(np.count_nonzero(odd))
    step, env = map(int, np.argwhere(odd)[0])
    who = f"version {policy.version} of epoch {policy.epoch}"
    reason = (
        f"{who}: {num_odd:,} of {odd.size:,} answers of an unroll are not finite "
        f"numbers, the first in its step {step} in environment {env}"
    )
    return Tally(odd_answers=num_odd, odd_answer=reason)


def _all_finite(column: Array) -> bool:
    """Whether a look at each value can be spared: most often it can."""
    if column.dtype.kind not in "fc":
        return True
    with np.errstate(all="ignore"):  # one too large says no, and nothing is lost
        return bool(np.isfinite(column.sum()))


def _finite_rows(column: Array) -> Array:
    finite = np.isfinite(column).reshape(*column.shape[:2], -1)
    return np.asarray(finite.all(axis=2))


def _odd_reward(rows: Rows, is_reset: Array, first_step: int) -> str:
    is_odd = ~(np.isfinite(rewards := rows.rewards) | rows.failed | is_reset)
    if not is_odd.any():
        return ""
    step, env = np.argwhere(is_odd)[0]
    return (
        f"environment {env}: the reward of step {first_step + step} is "
        f"{rewards[step, env]}"
    )


def _odd_observation(observations: dict[str, Array], first_step: int) -> str:
    for name, column in observations.items():
        if _all_finite(column):
            continue
        step, env, *place = map(int, np.argwhere(~np.isfinite(column))[0])
        what = f"observation {name}" if name else "observation"
        where = f" at {place}" if place else ""
        value = column[step, env, *place]
        return (
            f"environment {env}: the {what} of step {first_step + step} is {value}"
            f"{where}"
        )
    return ""
