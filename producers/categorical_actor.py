"""Acts by the probabilities of a softmax."""

from __future__ import annotations

from functools import reduce

import numpy as np

from producers.graph_steps import GraphSteps, odd_rows
from producers.policy import Policy
from producers.spaces import Fields
from schemas.tensors import Array


class CategoricalActor:
    """Draws from the softmax of a graph's ``logits`` [B, A]; greedy: the likeliest.

    By the Gumbel-max trick: argmax(logits + g) with g = -log(e), e ~ Exp(1), is drawn
    from the softmax. A logit of -inf is an action that there is not. Where all are, or
    one is NaN or inf, the first such action is taken, for certain.
    """

    def __init__(
        self,
        policy: Policy,
        num_envs: int,
        *,
        greedy: bool = False,
        frame_stack: int = 1,
    ) -> None:
        self.ref = policy.ref
        self.odd: Array | None = None
        self._steps = GraphSteps(policy, num_envs, frame_stack)
        self.memory = self._steps.memory
        self._num_envs = num_envs
        self._greedy = greedy
        (self._field,) = policy.session.graph.action
        self._num_actions, self._start = self._field.n[0], self._field.start[0]

    def begin(self, num_steps: int, rng: np.random.Generator) -> None:
        """Draw all that is random."""
        rows = (num_steps, self._num_envs)
        self._steps.begin(num_steps)
        self._logits = self._steps.answers["logits"]
        self._taken = np.empty(rows, np.int64)
        if not self._greedy:
            # In float64: rare actions are told apart by the smallest of the draws.
            draws = rng.standard_exponential((*rows, self._num_actions))
            np.maximum(draws, np.finfo(np.float64).tiny, out=draws)
            np.log(draws, out=draws)
            self._logs = draws.astype(self._logits.dtype, copy=False)
            self._scores = np.empty(self._logs.shape[1:], self._logits.dtype)

    def act(self, t: int, observations: Fields) -> Fields:
        """Return actions drawn by their probabilities, or the likeliest."""
        self._steps.run(t, observations)
        scores, index = self._logits[t], self._taken[t]
        if not self._greedy:
            scores = np.subtract(scores, self._logs[t], out=self._scores)
        scores.argmax(1, out=index)
        action = index + self._start if self._start else index
        return {self._field.name: action.astype(self._field.dtype, copy=False)}

    def finish(self, steps: int, observations: Fields) -> dict[str, Array]:
        """Return ``value`` [T+1, B] and ``log_prob`` [T, B], float32."""
        self._steps.run_last(steps, observations)
        value = self._steps.answers["value"][: steps + 1].astype(np.float32)
        logits, taken = self._logits[:steps], self._taken[:steps]
        log_prob, self.odd = log_softmax_of(logits, taken)
        if self._greedy:
            log_prob[:] = 0
        return {"value": value, "log_prob": log_prob}


def log_softmax_of(logits: Array, taken: Array) -> tuple[Array, Array | None]:
    """Return the log-probability of what was taken, and the rows that have none.

    Args:
        logits: [T, B, A].
        taken: [T, B], indices of A.

    Returns:
        log_prob [T, B] float32, 0 in the rows [T, B] where the largest logit is not
        finite; those, or None.
    """
    # Over so few numbers in a row, max() and sum() take thirty times as long.
    columns = np.moveaxis(logits, 2, 0)
    largest = reduce(np.maximum, columns[1:], columns[0].astype(np.float64))
    odd = odd_rows(largest)
    if odd is not None:
        largest[odd] = 0
    total = np.zeros(largest.shape)
    with np.errstate(all="ignore"):  # of what is odd
        for column in columns:
            total += np.exp(column - largest)
        chosen = np.take_along_axis(logits, taken[..., None], 2)[..., 0]
        log_prob = (chosen - largest - np.log(total)).astype(np.float32)
    if odd is not None:
        log_prob[odd] = 0
    return log_prob, odd
