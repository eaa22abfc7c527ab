"""What a person asks for -> one of the versions that there are; pure."""

from __future__ import annotations

from collections.abc import Sequence

from infra.policies.errors import NoPolicy, PolicyGone
from infra.policies.shelf import Kept

BEST, NEWEST = "best", "newest"
_SHOWN = 20


def choose(versions: Sequence[Kept], wanted: str | int | None) -> Kept:
    """Return the version that is wanted.

    Args:
        versions: all that there are, oldest first.
        wanted: its number, ``best`` or ``newest``; None: the best, where an evaluator
            has found one, else the newest.

    Raises:
        NoPolicy: there is none at all, or no best.
        PolicyGone: there is none of that number.
    """
    if not versions:
        raise NoPolicy(
            "policies: expected one at least, found none yet",
            "wait until the learner has published its first: `rollstream status`",
        )
    if wanted == NEWEST:
        return versions[-1]
    best = [each for each in versions if each.is_best]
    if wanted in (BEST, None):
        if best or wanted is None:
            return best[-1] if best else versions[-1]
        raise NoPolicy(
            "policies: expected a best one, found none: no evaluator has judged any",
            f"`--version newest` is {versions[-1].version.version}",
        )
    same = [each for each in versions if each.version.version == wanted]
    if not same:
        raise PolicyGone(
            f"policy version: expected one of {listed(versions)}, found {wanted}",
            "`rollstream policies` says what is kept",
        )
    return same[-1]


def listed(versions: Sequence[Kept]) -> str:
    """Return their numbers, the newest first, not too many of them."""
    numbers = [str(each.version.version) for each in reversed(versions)]
    more = len(numbers) - _SHOWN
    return ", ".join(numbers[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
