"""Brokers -> a snapshot of everything, again and again, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Self

from confluent_kafka import KafkaException

from infra.errors import RollstreamError
from infra.monitoring.lag.model import NO_REPORT, LagReport, Place, Standing
from infra.monitoring.lag.monitor import LagMonitor
from infra.monitoring.problems import in_words
from infra.monitoring.runs_followed import RunsFollowed
from infra.monitoring.snapshot import ExperimentView, Snapshot
from infra.settings import Settings

_POLL_S = 0.2
_RETRY_S = 1.0
_LEAVE_S = 5.0
# How long the first snapshot waits for all that there is, and for the first lag.
_FIRST_S = 10.0
_log = logging.getLogger("rollstream.watch")


class Watch:
    """Follows all experiments, and all consumer groups but those of runs that are over.

    Who asks for a snapshot never waits for a broker. Outages are survived: meanwhile
    the experiments and the lag stay as they were, and each snapshot tells of a problem.
    """

    def __init__(self, settings: Settings, *, every_s: float = 1.0) -> None:
        """Start nothing yet, and connect to nothing.

        Args:
            settings: a cluster.
            every_s: how long from one look to the next.
        """
        self._settings = settings
        self._every_s = every_s
        self._snapshot = Snapshot()
        self._newer = threading.Condition()
        self._closed = threading.Event()
        self._standings: Mapping[Place, Standing] = {}
        self._rows: Mapping[str, float] = {}
        self._over: frozenset[str] = frozenset()
        self._experiments: tuple[ExperimentView, ...] = ()
        self._experiments_at_s = 0.0
        self._lag: LagMonitor | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    @property
    def snapshot(self) -> Snapshot:
        """The latest one; with ``at_s`` 0 before the first look."""
        return self._snapshot

    def start(self) -> None:
        """Begin to look; returns at once.

        Raises:
            SettingsError: no brokers are named.
        """
        self._lag = LagMonitor(
            self._settings,
            wanted=lambda group: group not in self._over,
            every_s=self._every_s,
            standings=lambda: self._standings,
            rows_per_record=lambda: self._rows,
        )
        self._lag.start()
        self._thread.start()

    def wait_for_newer(self, at_s: float, timeout_s: float) -> Snapshot | None:
        """Wait for a snapshot whose ``at_s`` is larger; None: there was none in time.

        Once closed there is none any more, and nobody waits.
        """
        with self._newer:
            self._newer.wait_for(
                lambda: self._snapshot.at_s > at_s or self._closed.is_set(), timeout_s
            )
            return self._snapshot if self._snapshot.at_s > at_s else None

    def close(self) -> None:
        """Look no more; waits for the look that is under way, some seconds at most."""
        self._closed.set()
        with self._newer:
            self._newer.notify_all()
        if self._lag is not None:
            self._thread.join(_LEAVE_S)
            self._lag.close()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._look()
            except (RollstreamError, KafkaException, TimeoutError) as exc:
                self._publish(in_words(exc))
            except Exception as exc:
                # Whatever it is: who is watched for must not be left in the dark.
                _log.exception("the watch begins anew")
                self._publish(in_words(exc))
            self._closed.wait(_RETRY_S)

    def _look(self) -> None:
        """Look until closed; what was known stays known until all is read again."""
        with closing(RunsFollowed(self._settings)) as runs:
            whole_by_s = time.monotonic() + _FIRST_S
            due_s = 0.0
            while not self._closed.is_set():
                runs.hear(min(_POLL_S, self._every_s))
                self._standings, self._rows = runs.standings(), runs.rows_per_record()
                self._over = runs.over_groups()
                now_s = time.monotonic()
                if now_s < due_s:
                    continue
                runs.look()
                if now_s >= whole_by_s or self._is_whole(runs):
                    whole_by_s = 0.0
                    due_s = now_s + self._every_s
                    self._experiments = runs.views(time.time())
                    # Those views need no broker: where none answers they are old.
                    # A new one has no answer at first: not older than before.
                    self._experiments_at_s = max(
                        self._experiments_at_s, runs.answered_s
                    )
                    self._publish("")

    def _is_whole(self, runs: RunsFollowed) -> bool:
        report = self._report()
        return runs.is_caught_up and bool(report.at_s or report.problem)

    def _report(self) -> LagReport:
        return self._lag.report if self._lag else NO_REPORT

    def _publish(self, problem: str) -> None:
        lag, over = self._report(), self._over
        # A look that is older than the news of an end still has that run's groups.
        kept = tuple(each for each in lag.groups if each.group not in over)
        with self._newer:
            self._snapshot = Snapshot(
                # Newer than the last also where the clock was put back.
                at_s=max(time.time(), self._snapshot.at_s + 1e-3),
                lag=replace(lag, groups=kept),
                experiments=self._experiments,
                problem=problem or lag.problem,
                experiments_at_s=self._experiments_at_s,
            )
            self._newer.notify_all()
