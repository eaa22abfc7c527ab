"""Inserts and samples by source -> whose batch is let in next.

The limiter sees to it that all rows together are learnt from as often as the spec says.
Here it is seen to that this holds for each source, as far as that can be.
"""

from __future__ import annotations

from collections.abc import Sequence

from learner.rate_limiter import RateLimiter
from learner.sources import Source
from schemas.experiment import LearnerSpec


class Pace:
    """Orders sources, and lets the past not run ahead of the experiment's own rows.

    A source is ahead by what its rows have earned and was not drawn from it yet: rows x
    samples_per_insert - samples. The one least ahead, for its share, goes first.

    While there are rows of the experiment's own workers, others are let in only as fast
    as they are sampled. A past is read faster than workers step; let in as fast as it
    comes it would earn samples of which most are drawn from the workers' few rows,
    again and again. Where a past has ended theirs earn all samples, also those that are
    drawn from it. A source saves up what it makes no use of, but not more than what
    fills its buffer. While the workers stand still so does the past.
    """

    def __init__(
        self, sources: Sequence[Source], limiter: RateLimiter, learner: LearnerSpec
    ) -> None:
        """Follow the sources of a learner."""
        self._sources = tuple(sources)
        self._limiter = limiter
        self._batch_size = learner.batch_size
        self._capacity = learner.replay.capacity
        self._live = next((s for s in self._sources if s.run.is_live), None)
        self._widen()

    def order(self) -> Sequence[Source]:
        """Return the sources, the one that is to go first first."""
        if len(self._sources) == 1:
            return self._sources
        return sorted(self._sources, key=lambda s: s.ahead / s.run.share)

    def lets_in(self, source: Source) -> bool:
        """Whether a source's next batch does not run ahead."""
        live = self._live
        if live is None or live is source or not live.buffer.samplable_rows:
            return True
        earned = source.batch_rows * self._limiter.samples_per_insert
        return source.ahead + earned <= self._most(source)

    def inserted(self, source: Source, rows: int) -> None:
        """Count rows that were let in."""
        if len(self._sources) > 1:
            source.ahead += rows * self._limiter.samples_per_insert
            self._widen()

    def sampled(self, counts: Sequence[int]) -> None:
        """Count rows that were drawn of each source; empty where there is one."""
        for source, count in zip(self._sources, counts, strict=False):
            source.samples += count
            held = source.run.share * self._capacity
            least = -held * self._limiter.samples_per_insert
            source.ahead = max(source.ahead - count, least)

    def _most(self, source: Source) -> float:
        """Return how far a source may be ahead.

        Its part of the smallest buffer, and so much that batches and samples do not
        wait for each other.
        """
        limiter = self._limiter
        rows = source.run.share * limiter.min_size + 2 * source.batch_rows
        return rows * limiter.samples_per_insert + self._batch_size

    def _widen(self) -> None:
        """Leave the experiment's own rows the room that they would have alone."""
        others = [s for s in self._sources if not s.run.is_own]
        if len(self._sources) > 1:
            per_insert = self._limiter.samples_per_insert
            self._limiter.slack = sum(
                2 * s.batch_rows * per_insert + self._batch_size for s in others
            )
