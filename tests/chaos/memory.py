"""How much memory processes gain while they live."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import psutil

WARM_UP_S = 60.0
"""Imports, first buffers and JIT: no growth that goes on."""


@dataclass(frozen=True)
class Growth:
    """The slope of a process's resident memory over its life, without its warm-up."""

    name: str
    minutes: float
    megabytes: float
    megabytes_per_hour: float

    def __str__(self) -> str:
        return f"{self.name} {self.megabytes_per_hour:+.0f} MB/h"


class Memory:
    """Resident memory, looked at again and again."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, int], list[tuple[float, float]]] = {}

    def look(self, processes: Mapping[str, int]) -> None:
        """Take a sample of each process, by name and pid."""
        now_s = time.monotonic()
        for name, pid in processes.items():
            with contextlib.suppress(psutil.Error):
                megabytes = psutil.Process(pid).memory_info().rss / 1e6
                self._samples.setdefault((name, pid), []).append((now_s, megabytes))

    def growth(self) -> list[Growth]:
        """Return that of the longest life of each name; too short ones are left out."""
        longest: dict[str, Growth] = {}
        for (name, _), samples in self._samples.items():
            found = growth_of(name, samples)
            if found and found.minutes > longest.get(name, _NONE).minutes:
                longest[name] = found
        return [longest[name] for name in sorted(longest)]


_NONE = Growth("", 0.0, 0.0, 0.0)


def growth_of(name: str, samples: list[tuple[float, float]]) -> Growth | None:
    """Return the slope of (seconds, megabytes); None: it did not live long enough."""
    began_s = samples[0][0]
    warm = np.array([each for each in samples if each[0] - began_s >= WARM_UP_S])
    if len(warm) < 3:
        return None
    seconds, megabytes = warm.T
    slope = np.polyfit(seconds - seconds[0], megabytes, 1)[0]
    minutes = (samples[-1][0] - began_s) / 60
    return Growth(name, minutes, float(megabytes[-1]), float(slope * 3600))
