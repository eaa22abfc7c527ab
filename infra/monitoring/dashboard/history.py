"""Metrics topics -> series of a run; the newest at once, the rest soon after."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import AdminClient

from infra.errors import RollstreamError
from infra.monitoring.dashboard.curves import SERIES, curves_of, thin
from infra.monitoring.dashboard.metrics_log import MetricsLog, Read
from infra.monitoring.dashboard.sources import Unknown
from infra.settings import Settings

MAX_LOGS = 16
# For so long an answer waits for the rest of a log that is read for the first time.
PATIENCE_S = 0.3

_log = logging.getLogger("rollstream.dashboard")


class MetricsHistory:
    """Answers from what was read; of a long log, meanwhile goes on to read.

    Keeps what was read of as many experiments as MAX_LOGS, those last asked for.
    """

    def __init__(self, settings: Settings, admin: AdminClient) -> None:
        self._settings = settings
        self._admin = admin
        self._changed = threading.Condition()
        self._logs: OrderedDict[str, MetricsLog] = OrderedDict()
        self._unread: list[MetricsLog] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def read(
        self,
        experiment: str,
        *,
        points: int,
        run_id: str | None = None,
        last_s: float | None = None,
    ) -> Mapping[str, Any]:
        """Return the series of a run, empty ones where nothing is known of it.

        Raises:
            Unknown: there is no such experiment.
            RollstreamError: its metrics cannot be read.
        """
        log = self._log_of(experiment)
        problem = ""
        try:
            log.read_new()
        except RollstreamError as exc:
            if isinstance(exc, Unknown) or not log.runs():
                raise
            problem = exc.problem  # what was read is worth showing
        if not log.is_complete:
            self._read_on(log)
        runs = log.runs()
        chosen = run_id or (runs[0] if runs else "")
        # At one moment: what goes on to be read is not said to be among it.
        found = log.read(chosen)
        times, series = _thinned(found, points, last_s)
        return {
            "experiment": experiment,
            "run_id": chosen,
            "runs": runs,
            "problem": problem,
            "complete": found.whole_from_s <= (times[0] if times else -math.inf),
            "t": times,
            "series": series,
        }

    def close(self) -> None:
        """Read no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _log_of(self, experiment: str) -> MetricsLog:
        with self._changed:
            found = self._logs.pop(experiment, None)
            found = found or MetricsLog(self._settings, self._admin, experiment)
            self._logs[experiment] = found
            while len(self._logs) > MAX_LOGS:
                self._logs.popitem(last=False)
            return found

    def _read_on(self, log: MetricsLog) -> None:
        """Have the rest read, and wait a moment for it."""
        with self._changed:
            if log not in self._unread:
                self._unread.append(log)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._read_all, name="history", daemon=True
                )
                self._thread.start()
            self._changed.wait_for(lambda: log not in self._unread, PATIENCE_S)

    def _read_all(self) -> None:
        while (log := self._next()) is not None:
            try:
                is_done = not log.read_older()
            except RollstreamError as exc:
                _log.warning("%s", exc)
                is_done = True  # who asks again has it tried again
            except Exception:
                _log.exception("history: a chunk cannot be read")
                is_done = True
            if is_done:
                with self._changed:
                    self._unread.remove(log)
                    self._changed.notify_all()
            # Others need the interpreter as well.
            time.sleep(0.005)

    def _next(self) -> MetricsLog | None:
        """Return the log to go on with, all in turn; None, and the thread ends."""
        with self._changed:
            kept = set(self._logs.values())
            self._unread = [each for each in self._unread if each in kept]
            if self._closed or not self._unread:
                self._thread = None
                return None
            self._unread.append(self._unread.pop(0))
            return self._unread[-1]


def _thinned(
    found: Read, points: int, last_s: float | None
) -> tuple[list[float], dict[str, list[float | None]]]:
    if found.columns is None:
        return [], {name: [] for name in SERIES}
    return thin(curves_of(found.columns), points, last_s, found.pause_s)
