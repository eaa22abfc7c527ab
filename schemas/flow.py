"""Flow control: what workers and the learner must compute alike."""

import math

from schemas.learner_specs import LearnerSpec

SMALL_LAG = 1
"""Up to so many versions a learner counts the unrolls that are under way: one more
than it takes would be too old when it comes."""


def is_counted(learner: LearnerSpec) -> bool:
    """Whether windows are no more than what a learner's next updates take."""
    limit = learner.policy_lag_limit
    return learner.traits.is_on_policy and limit is not None and limit <= SMALL_LAG


def least_window(learner: LearnerSpec) -> int:
    """Return how many unrolls any worker may be ahead, whatever n is.

    Two are off-policy workers' due, so that they do not wait for each batch. On-policy
    ones have one for each version that their rows may be of.
    """
    if is_counted(learner):
        return 1 + (learner.policy_lag_limit or 0)
    return 2


def floor_window(
    n_step: int, unroll_length: int, fixed: int = 0, *, least: int = 2
) -> int:
    """Return the smallest window, in unrolls: what an incarnation starts with.

    A batch is emitted when the rows of ceil((n - 1) / T) further unrolls are there:
    with less credit the worker would wait for a batch that waits for the worker.
    Worker (``producers/credit.py``) and learner must come to the same number.

    Args:
        n_step: the largest number of rewards in a return.
        unroll_length: T.
        fixed: the spec's window; 0: none. One that could never move is widened.
        least: of ``least_window``.
    """
    closes = 1 + math.ceil((n_step - 1) / unroll_length)
    return max(fixed or least, closes)
