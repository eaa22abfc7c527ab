"""What happened since the last metrics: means, maxima, and events not repeated."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping

from infra.monitoring.event_kinds import EventKind, Severity
from infra.monitoring.reporter import Reporter
from learner.freshness import Freshness

EVENT_INTERVAL_S = 1.0
REUSE_REPORTS = 30
"""Over so many, batches being large, rows are sampled at the rate they come."""


class Gauges:
    """Gathers values between two reports.

    Attributes:
        waited_data_s: how long the learner waited for rows, since it started.
        idle_s: how long it had nothing to do, for want of whatever, likewise.
        freshness: of what is learnt from.
    """

    def __init__(self) -> None:
        self.waited_data_s = self.idle_s = 0.0
        self.freshness = Freshness()
        self._taken_at_s = time.monotonic()
        self._idle_before_s = 0.0
        self._reuse: deque[tuple[int, int]] = deque(maxlen=REUSE_REPORTS + 1)
        self._losses: list[float] = []
        self._figures: dict[str, list[float]] = {}
        self._lag_sum = 0.0
        self._lag_rows = 0
        self._latencies_ms: list[float] = []
        self._pause_s = 0.0
        self._last: dict[str, float] = {}
        self._noted_at: dict[str, float] = {}
        self._not_said: dict[str, int] = {}

    def loss(self, loss: float) -> None:
        """Add the loss of an update."""
        self._losses.append(loss)

    def figures(self, figures: Mapping[str, float]) -> None:
        """Add what an algorithm says of an update, by name."""
        for name, value in figures.items():
            self._figures.setdefault(name, []).append(value)

    def policy_lag(self, versions: int, rows: int) -> None:
        """Add by how many versions the policy that made ``rows`` is behind.

        As they come, that is; what is learnt from is in ``freshness``.
        """
        self._lag_sum += versions * rows
        self._lag_rows += rows

    def latency_ms(self, milliseconds: float) -> None:
        """Add the time from a batch's last row to its insertion, by two clocks."""
        self._latencies_ms.append(milliseconds)

    def checkpoint_pause_s(self, seconds: float) -> None:
        """Note for how long a checkpoint stopped the loop."""
        self._pause_s = seconds

    def note(
        self,
        reporter: Reporter,
        kind: EventKind,
        severity: Severity,
        reason: str,
    ) -> None:
        """Send an event, at most one a second of its kind; the rest are counted."""
        now_s = time.monotonic()
        if now_s - self._noted_at.get(kind, -math.inf) < EVENT_INTERVAL_S:
            self._not_said[kind] = self._not_said.get(kind, 0) + 1
            return
        self._noted_at[kind] = now_s
        others = self._not_said.pop(kind, 0)
        more = f" (and {others} more since the last)" if others else ""
        reporter.event(kind, severity, reason + more)

    def take(self, samples: int, inserts: int) -> dict[str, float]:
        """Return the values since the last call, and start again.

        A mean of nothing is the one before; there is none before the first.

        Args:
            samples: rows sampled so far, across restarts.
            inserts: rows inserted so far that can be sampled, likewise.
        """
        values = {
            "waited_data_s": self.waited_data_s,
            "checkpoint_pause_s": self._pause_s,
        }
        values |= self._wait_ratio(time.monotonic()) | self._ratios(samples, inserts)
        if self._losses:
            self._last["loss"] = sum(self._losses) / len(self._losses)
        for name, values_of_it in self._figures.items():
            self._last[name] = sum(values_of_it) / len(values_of_it)
        if self._lag_rows:
            self._last["policy_lag_mean"] = self._lag_sum / self._lag_rows
        if self._latencies_ms:
            mean = sum(self._latencies_ms) / len(self._latencies_ms)
            self._last["latency_ms"] = mean
        self._last |= self.freshness.take()
        self._losses, self._latencies_ms, self._figures = [], [], {}
        self._lag_sum, self._lag_rows = 0.0, 0
        return values | self._last | self.freshness.rows()

    def _wait_ratio(self, now_s: float) -> dict[str, float]:
        """Return the share of the time in which there was nothing to do."""
        elapsed_s, self._taken_at_s = now_s - self._taken_at_s, now_s
        idle_s = self.idle_s - self._idle_before_s
        self._idle_before_s = self.idle_s
        return {"wait_ratio": min(idle_s / elapsed_s, 1.0)} if elapsed_s > 0 else {}

    def _ratios(self, samples: int, inserts: int) -> dict[str, float]:
        """Return how often a row is sampled: lately, and since the run began.

        Lately: over 30 reports, or as many as there were. None where none came.
        """
        self._reuse.append((samples, inserts))
        samples_before, inserts_before = self._reuse[0]
        values = {}
        if (came := inserts - inserts_before) > 0:
            values["samples_per_insert"] = (samples - samples_before) / came
        if inserts > 0:
            values["samples_per_insert_run"] = samples / inserts
        return values
