"""Flow control: what workers and the learner must compute alike."""

import math


def floor_window(n_step: int, unroll_length: int, fixed: int = 0) -> int:
    """Return the smallest window, in unrolls: what an incarnation starts with.

    A batch is emitted when the rows of ceil((n - 1) / T) further unrolls are there:
    with less credit the worker would wait for a batch that waits for the worker.
    Another one is off-policy workers' due, so that they do not wait for each batch.

    Args:
        n_step: the largest number of rewards in a return.
        unroll_length: T.
        fixed: the spec's window; 0: none. One that could never move is widened.
    """
    closes = 1 + math.ceil((n_step - 1) / unroll_length)
    return max(fixed or 2, closes)
