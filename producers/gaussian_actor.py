"""Acts by a normal distribution of each coordinate."""

from __future__ import annotations

import math

import numpy as np

from producers.graph_steps import GraphSteps, odd_rows
from producers.heads import is_squashed
from producers.policy import Policy
from producers.spaces import Fields
from schemas.records import SpaceField
from schemas.tensors import Array

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class GaussianActor:
    """Draws mean + exp(log_std) · eps, [B, D...]; greedy: the mean.

    The environment gets the sample clipped to the action's bounds or, where the graph's
    exploration is ``squashed``, low + (tanh(sample) + 1) / 2 · (high - low). Where the
    sample would not be finite it is drawn from the standard normal distribution.
    """

    def __init__(
        self,
        policy: Policy,
        num_envs: int,
        *,
        greedy: bool = False,
        frame_stack: int = 1,
    ) -> None:
        graph = policy.session.graph
        self.ref = policy.ref
        self.odd: Array | None = None
        self._steps = GraphSteps(policy, num_envs, frame_stack)
        self.memory = self._steps.memory
        self._num_envs = num_envs
        self._greedy = greedy
        (self._field,) = graph.action
        self._bounds = _Bounds(self._field, is_squashed(graph))

    def begin(self, num_steps: int, rng: np.random.Generator) -> None:
        """Draw all that is random."""
        rows = (num_steps, self._num_envs)
        self._steps.begin(num_steps)
        answers = self._steps.answers
        self._mean, self._log_std = answers["mean"], answers["log_std"]
        drawn = rng.standard_normal((*rows, *self._field.shape), np.float32)
        self._noise = np.zeros_like(drawn) if self._greedy else drawn
        self._sample = np.empty_like(drawn)
        self._replaced: Array = np.zeros(rows, np.bool_)

    def act(self, t: int, observations: Fields) -> Fields:
        """Return actions within the bounds; of their samples the record keeps both."""
        self._steps.run(t, observations)
        sample = self._sample[t]
        with np.errstate(over="ignore", invalid="ignore"):
            if self._greedy:
                sample[...] = self._mean[t]
            else:
                np.exp(self._log_std[t], out=sample)
                sample *= self._noise[t]
                sample += self._mean[t]
        if not np.isfinite(sample).all():
            self._replace(t)
        return {self._field.name: self._bounds.action(sample)}

    def finish(self, steps: int, observations: Fields) -> dict[str, Array]:
        """Return ``sample`` [T, B, D...] and ``log_prob`` [T, B], float32.

        And ``value`` [T+1, B] where the graph has one; ``log_prob`` is the density of
        the normal distribution at ``sample``, without any correction for tanh.
        """
        self._steps.run_last(steps, observations)
        sample = self._sample[:steps]
        log_prob = normal_log_density(sample, self._mean[:steps], self._log_std[:steps])
        self.odd = odd_rows(np.where(self._replaced[:steps], np.nan, log_prob))
        # Of a deviation too small to divide by: it is certain.
        log_prob[~np.isfinite(log_prob)] = 0
        columns = {"sample": sample.copy(), "log_prob": log_prob}
        if "value" in self._steps.answers:
            value = self._steps.answers["value"][: steps + 1]
            columns["value"] = value.astype(np.float32)
        return columns

    def _replace(self, t: int) -> None:
        """Put the standard normal distribution in the place of what is none."""
        finite = np.isfinite(self._sample[t]).reshape(self._num_envs, -1).all(1)
        self._replaced[t] = odd = ~finite
        self._mean[t, odd] = self._log_std[t, odd] = 0
        self._sample[t, odd] = self._noise[t, odd]


def normal_log_density(sample: Array, mean: Array, log_std: Array) -> Array:
    """Return the log-density of samples [T, B, D...], all coordinates', [T, B] float32.

    In float64: where the deviation is small, float32 loses what a sample is from it.
    """
    mean, log_std = mean.astype(np.float64), log_std.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        z = (sample - mean) * np.exp(-log_std)
        each = (-0.5 * z * z - log_std - _HALF_LOG_2PI).reshape(*sample.shape[:2], -1)
        density: Array = (each @ np.ones(each.shape[2])).astype(np.float32)
    return density


class _Bounds:
    """An action's bounds, and how samples come to lie within them."""

    def __init__(self, field: SpaceField, squashed: bool) -> None:
        assert field.low is not None and field.high is not None  # as heads checks
        self._dtype = np.dtype(field.dtype)
        limits = np.finfo(self._dtype)
        low, high = field.low.array(), field.high.array()
        # Where there are none the largest numbers: nothing infinite is an action.
        self._low, self._high = np.clip((low, high), limits.min, limits.max)
        self._squashed = squashed
        if squashed:
            low, high = low.astype(np.float64), high.astype(np.float64)
            self._middle = (low / 2 + high / 2).astype(self._dtype)
            self._half = (high / 2 - low / 2).astype(self._dtype)

    def action(self, sample: Array) -> Array:
        """Return actions [B, D...] in the action's own dtype."""
        if self._squashed:
            sample = np.tanh(sample) * self._half + self._middle
        # Squashed ones too: rounding may step over a bound.
        within: Array = np.minimum(np.maximum(sample, self._low), self._high)
        return within.astype(self._dtype, copy=False)
