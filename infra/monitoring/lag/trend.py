"""Samples -> does the lag grow? Pure."""

from __future__ import annotations

from collections.abc import Sequence

from infra.monitoring.lag.measures import lag_of
from infra.monitoring.lag.model import Sample


def growth(samples: Sequence[Sample]) -> tuple[int, int] | None:
    """Return the least lag of the first and of the last third of the time.

    None where it does not grow from each third to the next. The least of some time
    knows nothing of how batches and commits make a lag go up and down.
    """
    start_s, end_s = samples[0].at_s, samples[-1].at_s
    least: list[int | None] = [None, None, None]
    for sample in samples:
        share = (sample.at_s - start_s) / (end_s - start_s) if end_s > start_s else 0.0
        third, lag = min(2, int(3 * share)), lag_of(sample)
        if lag is None:
            return None
        before = least[third]
        least[third] = lag if before is None else min(before, lag)
    first, second, last = least
    if first is None or second is None or last is None:
        return None
    return (first, last) if first < second < last else None
