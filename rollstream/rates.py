"""Counters over time -> rates; pure."""

from __future__ import annotations

from collections import deque

WINDOW_S = 5.0


class Rate:
    """Units a second of a growing counter, over the last WINDOW_S."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, at_s: float, value: float) -> float:
        """Take in the counter's value at a time; return the rate now."""
        samples = self._samples
        if samples and value < samples[-1][1]:
            samples.clear()  # it started anew
        samples.append((at_s, value))
        while len(samples) > 2 and at_s - samples[1][0] >= WINDOW_S:
            samples.popleft()
        (first_s, first), (last_s, last) = samples[0], samples[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0
