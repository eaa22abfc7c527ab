"""A process's counters, as it told them -> how fast they grow; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

WINDOW_S = 10.0
"""Over which a rate is taken: a burst of a second is no news."""

QUIET_S = 10.0
"""After which nothing is known of a counter's rate any more."""


class CounterRates:
    """Keeps the samples of the last WINDOW_S, of one incarnation."""

    def __init__(self) -> None:
        self._incarnation: int | None = None
        self._samples: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=64)

    def add(self, incarnation: int, at_s: float, values: Mapping[str, float]) -> None:
        """Take in the counters of an incarnation at a time, by the broker's clock."""
        if incarnation != self._incarnation:
            self._samples.clear()
            self._incarnation = incarnation
        samples = self._samples
        if samples and at_s <= samples[-1][0]:
            samples.pop()  # of the same moment: the later one says more
        samples.append((at_s, values))
        while len(samples) > 2 and at_s - samples[1][0] >= WINDOW_S:
            samples.popleft()

    def at(self, now_s: float) -> dict[str, float]:
        """Return units a second by counter; none where that is not known now."""
        if len(self._samples) < 2 or now_s - self._samples[-1][0] > QUIET_S:
            return {}
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return {
            name: max(0.0, value - first[name]) / (last_s - first_s)
            for name, value in last.items()
            if name in first
        }
