"""The lag of groups, followed by a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

from confluent_kafka import KafkaException

from infra.errors import RollstreamError
from infra.monitoring.lag.collector import Collector
from infra.monitoring.lag.groups import Groups, Wanted
from infra.monitoring.lag.model import NO_REPORT, LagReport, Place, Standing
from infra.monitoring.lag.reports import fault, report_of
from infra.monitoring.lag.unread import EACH_LOOK, Unread
from infra.monitoring.lag.window import Window
from infra.monitoring.problems import in_words
from infra.settings import Settings

_log = logging.getLogger("rollstream.lag")


class LagMonitor:
    """Looks each second; outlives outages of the brokers, and never raises."""

    def __init__(
        self,
        settings: Settings,
        *,
        wanted: Wanted,
        every_s: float = 1.0,
        standings: Callable[[], Mapping[Place, Standing]] | None = None,
        rows_per_record: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        """Make one that does not look yet.

        Args:
            settings: where the cluster is.
            wanted: which groups; by a condition, or by id.
            every_s: from one look to the next.
            standings: tells where roles of ours stand; called in the monitor's thread
                once a look, after the committed offsets were read, before the ends.
            rows_per_record: tells, by group, how many steps of environments a record
                has that it reads; likewise.
        """
        self._settings = settings
        self._groups = Groups(wanted)
        self._every_s = every_s
        self._standings = standings or dict
        self._rows_per_record = rows_per_record or dict
        self._report = NO_REPORT
        self._windows: dict[Place, Window] = {}
        self._closed = threading.Event()
        self._newer = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)

    def start(self) -> None:
        """Begin to look, in a thread of its own."""
        self._thread.start()

    def close(self, timeout_s: float | None = None) -> None:
        """Stop; waits for the look that is under way, a few seconds at most.

        Args:
            timeout_s: waits no longer; the look ends by itself then.
        """
        self._closed.set()
        with self._newer:
            self._newer.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    @property
    def report(self) -> LagReport:
        """What was seen last; NO_REPORT before the first look.

        While the brokers do not answer it says so (``problem``), and keeps the groups
        as they were (``at_s`` tells when).
        """
        return self._report

    def wait_for_newer(self, at_s: float, timeout_s: float) -> LagReport:
        """Return the report once it is newer than ``at_s``, or else after a while."""
        with self._newer:
            self._newer.wait_for(
                lambda: self._report.at_s > at_s or self._closed.is_set(), timeout_s
            )
            return self._report

    def window(self, place: Place) -> Window | None:
        """Return the samples of a partition; None when it is not watched."""
        return self._windows.get(place)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._follow()
            except Exception as exc:
                # With new clients: what is wrong with these is not known.
                problem = in_words(exc)
                if not isinstance(exc, RollstreamError | KafkaException):
                    if problem != self._report.problem:
                        _log.exception("the lag is looked at anew")
                self._publish(replace(self._report, problem=problem))
                self._closed.wait(self._every_s)

    def _follow(self) -> None:
        with (
            closing(Collector(self._settings, self._groups, "lag")) as collector,
            closing(Unread(self._settings, "lag-unread", EACH_LOOK)) as unread,
        ):
            due_s = time.monotonic()
            while not self._closed.is_set():
                self._look(collector, unread)
                # Those that were missed are not made up for.
                due_s = max(due_s + self._every_s, time.monotonic())
                self._closed.wait(due_s - time.monotonic())

    def _look(self, collector: Collector, unread: Unread) -> None:
        look = collector.look(self._standings)
        silent = {name for name, g in look.groups.items() if g.committed is None}
        self._windows = {
            place: window
            for place, window in self._windows.items()
            if place in look.samples or place in look.unread or place.group in silent
        }
        samples = unread.complete(look.samples, self._windows)
        windows, unread_now = dict(self._windows), dict(look.unread)
        for place, sample in samples.items():
            try:
                windows.setdefault(place, Window()).add(sample)
            except Exception as exc:  # else no other is looked at any more
                unread_now[place] = fault(place, exc)
                del windows[place]
        self._windows = windows
        look = replace(look, unread=unread_now)
        self._publish(report_of(look, windows, self._rows_per_record(), self._report))

    def _publish(self, report: LagReport) -> None:
        with self._newer:
            self._report = report
            self._newer.notify_all()
