"""The latest snapshot -> what Prometheus scrapes. No scrape touches Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from infra.monitoring import lag_series, run_series
from infra.monitoring.lag_series import add_lag
from infra.monitoring.metric_series import Families, Series
from infra.monitoring.run_series import HighWater, add_runs
from infra.monitoring.snapshot import Snapshot

FRESH_S = 15.0
"""A snapshot that is older says that nobody looks any more."""

OLD_S = 60.0
"""What is older is not shown: Prometheus would take it for what is now."""

UP = Series("rollstream_exporter_up", "1: what is exported is of now, and all there is")
AT = Series("rollstream_exporter_snapshot_timestamp_seconds", "When the last look was")
LAG_AT = Series("rollstream_exporter_lag_timestamp_seconds", "When lag was read last")

SERIES = (UP, AT, LAG_AT, *lag_series.SERIES, *run_series.SERIES)
"""All that is exported."""


class Source(Protocol):
    """Where snapshots come from: ``infra.monitoring.watch.Watch``, for one."""

    @property
    def snapshot(self) -> Snapshot:
        """The latest."""


def is_fresh(snapshot: Snapshot, now_s: float) -> bool:
    """Whether somebody looks, however little is seen."""
    return now_s - snapshot.at_s <= FRESH_S


class Exporter(Collector):
    """Collects from the latest snapshot; what was made of one serves all scrapes."""

    def __init__(self, source: Source, cluster: str = "default") -> None:
        """Make a collector for a registry.

        Args:
            source: of snapshots.
            cluster: the value of ``cluster_name``.
        """
        self._source = source
        self._cluster = cluster
        self._high = HighWater()
        self._lock = threading.Lock()
        self._made_of: Snapshot | None = None
        self._made: list[Metric] = []

    def describe(self) -> Iterable[Metric]:
        """Return all families that there may be; which there are, a scrape says."""
        return [series.family() for series in SERIES]

    def collect(self) -> Iterator[Metric]:
        """Yield the families of a scrape."""
        snapshot, now_s = self._source.snapshot, time.time()
        with self._lock:
            if snapshot is not self._made_of:
                self._made_of, self._made = snapshot, self._make(snapshot)
            made = self._made
        about = Families()
        fresh = is_fresh(snapshot, now_s)
        about.add(UP, (), float(fresh and not snapshot.problem))
        about.add(AT, (), snapshot.at_s)
        about.add(LAG_AT, (), snapshot.lag.at_s)
        yield from about.families()
        if fresh:
            yield from made

    def _make(self, snapshot: Snapshot) -> list[Metric]:
        families = Families()
        if snapshot.at_s - snapshot.lag.at_s <= OLD_S:
            add_lag(families, snapshot.lag, self._cluster)
        if snapshot.at_s - snapshot.experiments_at_s <= OLD_S:
            add_runs(families, snapshot.experiments, snapshot.at_s, self._high)
        return families.families()
