"""Processes, and what their workers report -> CPU time, memory and rates."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

from infra.monitoring.progress import Progress


@dataclass(frozen=True)
class ProcessUse:
    """What a process used while measured.

    Attributes:
        role: which process.
        cpu_share: CPU seconds a second.
        cpu_us_per_step: CPU microseconds for each step that reached the learner.
        peak_rss_mb: the most that was resident, ever.
    """

    role: str
    cpu_share: float
    cpu_us_per_step: float
    peak_rss_mb: float


class Meter:
    """CPU time and peak memory of processes."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._processes = {role: psutil.Process(pid) for role, pid in pids.items()}
        # By role: CPU seconds so far, by the monotonic clock.
        self._cpu_s: dict[str, dict[float, float]] = {role: {} for role in pids}
        self._peak_mb: dict[str, float] = {}
        # By worker: when it reported, by its own clock, and its steps by then.
        self._reports: dict[int, dict[int, float]] = {}

    def sample(self) -> None:
        """Look at every process that still runs."""
        for role, process in self._processes.items():
            try:
                times, memory = process.cpu_times(), process.memory_info()
            except psutil.Error:
                continue
            self._cpu_s[role][time.monotonic()] = times.user + times.system
            peak = max(self._peak_mb.get(role, 0.0), memory.rss / 2**20)
            self._peak_mb[role] = peak

    def note_workers(self, progress: Progress) -> None:
        """Take in the workers' newest reports."""
        for (role, index), point in progress.points.items():
            if role == "worker":
                reports = self._reports.setdefault(index, {})
                reports[point.produced_at_ms] = point.values["env_steps"]

    def worker_steps_per_s(self) -> float:
        """Return the workers' rate over the second half, when all is under way."""
        return sum(map(_rate_of_second_half, self._reports.values()))

    def uses(
        self, began_s: float, ended_s: float, steps_per_s: float
    ) -> list[ProcessUse]:
        """Return what each process used between two monotonic times."""
        uses = []
        for role, samples in self._cpu_s.items():
            within = {
                at: cpu for at, cpu in samples.items() if began_s <= at <= ended_s
            }
            share = _rate(within)
            us_per_step = share / steps_per_s * 1e6 if steps_per_s else 0.0
            peak_mb = self._peak_mb.get(role, 0.0)
            uses.append(
                ProcessUse(
                    role, round(share, 3), round(us_per_step, 3), round(peak_mb, 1)
                )
            )
        return uses


def _rate_of_second_half(reports: dict[int, float]) -> float:
    half = sorted(reports.items())[len(reports) // 2 :]
    return _rate(dict(half)) * 1000


def _rate(samples: dict[float, float]) -> float:
    """Return how fast a value that is sampled now and then grows."""
    if len(samples) < 2:
        return 0.0
    first_s, last_s = min(samples), max(samples)
    return (samples[last_s] - samples[first_s]) / (last_s - first_s)
