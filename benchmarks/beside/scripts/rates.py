"""Steps over time -> a rate; runs in peers' environments."""

from __future__ import annotations

from collections.abc import Sequence


def rate_of_second_half(told: Sequence[tuple[float, int]]) -> float:
    """Return the steps a second of the later half of the time, from [s, steps]."""
    if len(told) < 2:
        return 0.0
    middle_s = (told[0][0] + told[-1][0]) / 2
    half = [point for point in told if point[0] >= middle_s]
    (began_s, first), (ended_s, last) = half[0], half[-1]
    return round((last - first) / max(ended_s - began_s, 1e-9), 1)
