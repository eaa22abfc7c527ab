"""Several buffers, each with its share -> one sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from learner.replay_buffer import ReplayBuffer
from learner.sample import Drawn, Sample
from learner.sum_tree import Floats, Indices
from schemas.experiment import ReplaySpec
from schemas.tensors import Array


class Mixture:
    """The buffers of all sources, sampled as one.

    Of a batch each source has its share, on average exactly and never a row more or
    less than that rounded; what a source without a row to sample would have is shared
    among the others. Within a source rows are drawn by priority.

    Importance weights correct for priorities, not for shares. A row drawn from a source
    with N rows has the weight (N P)^-beta, P being its probability within the source,
    over the largest such weight of all sources' rows (or of the batch's). With beta = 1
    the weighted loss is therefore, on average and but for one common factor, the mean
    loss of each source's rows, summed by share. Were each source's weights divided by
    its own largest, a source of uneven priorities would count less than its share.
    """

    def __init__(
        self, buffers: Sequence[ReplayBuffer], shares: Sequence[float]
    ) -> None:
        """Mix buffers; ``shares`` are relative to each other, each above 0."""
        if not buffers or len(buffers) != len(shares) or min(shares) <= 0:
            raise ValueError(
                f"expected a share above 0 for each of {len(buffers)} buffers, "
                f"found {list(shares)}"
            )
        self._buffers = tuple(buffers)
        self._shares = np.array(shares, np.float64)

    @property
    def samplable_rows(self) -> int:
        """See ReplayBuffer, as of the next ones."""
        return sum(buffer.samplable_rows for buffer in self._buffers)

    @property
    def rows(self) -> int:
        """Valid rows held."""
        return sum(buffer.rows for buffer in self._buffers)

    @property
    def learnable_rows(self) -> int:
        """Rows that can be sampled, now or once what they wait for has come."""
        return sum(buffer.learnable_rows for buffer in self._buffers)

    @property
    def dropped_rows(self) -> int:
        """Rows that were never sampled, and never will be."""
        return sum(buffer.dropped_rows for buffer in self._buffers)

    @property
    def is_full(self) -> bool:
        """Whether one of them is: no more may come for it than there is."""
        return any(buffer.is_full for buffer in self._buffers)

    def sample(self, batch_size: int, beta: float, rng: np.random.Generator) -> Sample:
        """Draw rows by share and priority.

        Raises:
            ValueError: no row can be sampled.
        """
        if len(self._buffers) == 1:
            return self._buffers[0].sample(batch_size, beta, rng)
        counts = self._counts(batch_size, rng)
        drawn = {
            number: buffer.draw(counts[number], rng)
            for number, buffer in enumerate(self._buffers)
            if buffer.samplable_rows
        }
        weights = self._weights(drawn, beta)
        parts = {
            number: self._buffers[number].gather(each.slots, weights[number])
            for number, each in drawn.items()
            if counts[number]
        }
        return _joined(parts, counts)

    def drop_older(self, version: int) -> int:
        """Drop rows of policies before a version: those of the first source.

        Others' versions are not ours to be behind of.
        """
        return self._buffers[0].drop_older(version)

    def update_priorities(self, indices: Indices, td_errors: Array) -> None:
        """Give the errors of a sample's rows back to the buffers that they are from."""
        if len(self._buffers) == 1:
            self._buffers[0].update_priorities(indices, td_errors)
            return
        positions, numbers = np.divmod(indices, len(self._buffers))
        for number, buffer in enumerate(self._buffers):
            mine = numbers == number
            if mine.any():
                buffer.update_priorities(positions[mine], td_errors[mine])

    def _counts(self, batch_size: int, rng: np.random.Generator) -> tuple[int, ...]:
        there = [buffer.samplable_rows > 0 for buffer in self._buffers]
        if not any(there):
            raise ValueError("expected a row that can be sampled, found none")
        return divide(batch_size, np.where(there, self._shares, 0.0), rng)

    def _weights(self, drawn: Mapping[int, Drawn], beta: float) -> dict[int, Floats]:
        rows = {number: self._buffers[number].samplable_rows for number in drawn}
        least = min(rows[number] * each.least for number, each in drawn.items())
        return {
            number: (each.probabilities * (rows[number] / least)) ** -beta
            for number, each in drawn.items()
        }


def divide(count: int, shares: Floats, rng: np.random.Generator) -> tuple[int, ...]:
    """Divide ``count`` by shares: whole numbers whose means are exact.

    Systematic rounding: one random offset for all. Each number is its share rounded up
    or down, their sum is ``count``, and a share of 0 gets nothing.
    """
    ends = np.cumsum(shares) * (count / shares.sum())
    marks = np.minimum(np.floor(ends + rng.random()), count)
    marks[np.flatnonzero(shares)[-1] :] = count  # whatever rounding does
    return tuple(np.diff(marks, prepend=0.0).astype(np.int64).tolist())


def divided_replay(replay: ReplaySpec, share: float) -> ReplaySpec:
    """Return a source's part of the buffer that a spec asks for."""
    return replay.model_copy(update={"capacity": max(1, int(replay.capacity * share))})


def _joined(parts: Mapping[int, Sample], counts: tuple[int, ...]) -> Sample:
    """Put samples together; their indices tell the sources apart."""
    samples = list(parts.values())
    indices = [each.indices * len(counts) + number for number, each in parts.items()]
    return Sample(
        indices=np.concatenate(indices),
        weights=_concatenated([each.weights for each in samples]),
        observations=_by_name([each.observations for each in samples]),
        actions=_by_name([each.actions for each in samples]),
        returns=_concatenated([each.returns for each in samples]),
        discounts=_concatenated([each.discounts for each in samples]),
        bootstrap_observations=_by_name(
            [each.bootstrap_observations for each in samples]
        ),
        counts=counts,
    )


def _by_name(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    return {name: _concatenated([part[name] for part in parts]) for name in parts[0]}


def _concatenated(arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
