"""A metrics topic, newest records first -> tables that grow at both ends."""

from __future__ import annotations

import math
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from infra.errors import RollstreamError
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.identity import find_topic
from infra.kafka.peeking import make_peeker
from infra.kafka.reading import offset_at_time, watermarks
from infra.monitoring.dashboard.metric_rows import (
    read_messages,
    rows_of,
    skim,
)
from infra.monitoring.dashboard.sources import Unknown
from infra.monitoring.dashboard.tables import KEPT_S, Columns, Tables, joined
from infra.settings import Settings
from schemas.topics import METRICS, topic_name

FIRST_RECORDS = 2_000
CHUNK_RECORDS = 5_000
# Of a day that is as busy as it gets; what is older is not shown.
MAX_RECORDS = 2_000_000

LOOK_S = 1.0
# What could not be read is not asked for by each who comes.
AGAIN_S = 5.0
_TIMEOUT_S = 10.0


@dataclass
class _Known:
    """What was read.

    Attributes:
        tables: of what was read whole, from ``whole_from_s`` on.
        skimmed: of what is older, here and there.
        places: in how many places.
        begin: where the log begins, or a day ago.
        oldest: the first offset that was read whole; -1: nothing was.
        next: the first that was not read yet.
        newest_ms: the time of the newest record.
        is_skimmed: the old was looked at, if only to see that there is little.
    """

    tables: Tables = field(default_factory=Tables)
    skimmed: Tables = field(default_factory=Tables)
    places: int = 1
    whole_from_s: float = math.inf
    begin: int = 0
    oldest: int = -1
    next: int = -1
    newest_ms: int = 0
    is_skimmed: bool = False

    @property
    def is_complete(self) -> bool:
        return 0 <= self.oldest <= self.begin

    @property
    def pause_s(self) -> float:
        first_s = self.skimmed.oldest_s
        if self.is_complete or first_s is None:
            return 0.0
        return 2 * (self.whole_from_s - first_s) / self.places


@dataclass(frozen=True)
class Read:
    """What was read of a run.

    Attributes:
        columns: of its tables; None: nothing was.
        whole_from_s: all that was appended from then on is among it.
        pause_s: for how long there may be nothing between what was skimmed; 0: it was
            not.
    """

    columns: Columns | None
    whole_from_s: float
    pause_s: float


class MetricsLog:
    """One experiment's metrics of the last day.

    At the first look it reads the newest records, and skims the rest; then at each look
    what is new, and in between more and more of the old. Its methods may be called from
    any thread; one at a time reads.
    """

    def __init__(self, settings: Settings, admin: AdminClient, experiment: str) -> None:
        self._settings = settings
        self._admin = admin
        self._experiment = experiment
        self._topic = topic_name(METRICS, experiment)
        self._topic_id = ""
        self._reading = threading.Lock()
        self._due_s = -math.inf
        self._failed: RollstreamError | None = None
        # For the tables, which others read meanwhile.
        self._lock = threading.Lock()
        self._known = _Known()

    @property
    def is_complete(self) -> bool:
        """Whether all is read that was there at the last look."""
        with self._lock:
            return self._known.is_complete

    def runs(self) -> list[str]:
        """Return the ids of the runs that are known, newest first."""
        with self._lock:
            found = self._known.tables.runs()
            skimmed = self._known.skimmed.runs()
            return found + [each for each in skimmed if each not in found]

    def read(self, run_id: str) -> Read:
        """Return what was read of a run, as it is at one moment."""
        with self._lock:
            known = self._known
            skimmed = None if known.is_complete else known.skimmed.run(run_id)
            whole = known.tables.run(run_id)
            return Read(
                columns=joined(skimmed, whole, known.whole_from_s),
                whole_from_s=-math.inf if known.is_complete else known.whole_from_s,
                pause_s=known.pause_s,
            )

    def read_new(self) -> None:
        """Read what was appended since the last look, at most once in LOOK_S.

        Raises:
            Unknown: there is no such topic.
            RollstreamError: the brokers do not answer, or it cannot be read.
        """
        with self._reading:
            if time.monotonic() < self._due_s:
                if self._failed is not None:
                    raise self._failed.with_traceback(None)
                return
            self._failed, pause_s = None, LOOK_S
            try:
                self._read_new()
            except RollstreamError as exc:
                self._failed = exc
                pause_s = LOOK_S if isinstance(exc, Unknown) else AGAIN_S
                raise
            finally:
                self._due_s = time.monotonic() + pause_s

    def read_older(self) -> bool:
        """Read the chunk before what was read; say whether more is left.

        Raises as ``read_new`` does.
        """
        with self._reading:
            known = self._known
            if known.oldest > known.begin:
                with closing(self._consumer()) as consumer:
                    begin, _ = watermarks(consumer, self._topic, 0, _TIMEOUT_S)
                    known.begin = max(begin, known.begin)
                    start = max(known.begin, known.oldest - CHUNK_RECORDS)
                    self._put(consumer, start, known.oldest, before=True)
            return known.oldest > known.begin

    def _read_new(self) -> None:
        self._look()
        with closing(self._consumer()) as consumer:
            begin, end = watermarks(consumer, self._topic, 0, _TIMEOUT_S)
            if end < self._known.next or begin > self._known.next >= 0:
                self._forget()
            known = self._known
            if known.next < 0:
                known.oldest = known.next = max(begin, end - FIRST_RECORDS)
            for start in range(known.next, end, CHUNK_RECORDS):
                stop = min(start + CHUNK_RECORDS, end)
                self._put(consumer, start, stop, before=False)
            known.begin = max(known.begin, begin, end - MAX_RECORDS)
            if not known.is_skimmed and not known.is_complete:
                # A segment is deleted as a whole: the log may hold a week.
                day_ago_ms = max(0, known.newest_ms - int(KEPT_S * 1000))
                first = offset_at_time(consumer, self._topic, day_ago_ms, [0])[0]
                known.begin = max(known.begin, first)
        if not known.is_skimmed and known.oldest - known.begin > 2 * CHUNK_RECORDS:
            with closing(make_peeker(self._settings, "history-skim")) as consumer:
                found = skim(consumer, self._topic, known.begin, known.oldest)
            with self._lock:
                known.skimmed.put(found.rows, before=False)
                known.places = found.places
        known.is_skimmed = True

    def _forget(self) -> None:
        with self._lock:
            self._known = _Known()

    def _look(self) -> None:
        """See whether it is still the same topic."""
        found = find_topic(self._admin, self._topic, _TIMEOUT_S)
        if found is None:
            self._forget()
            raise Unknown(f"there are no metrics of {self._experiment}")
        if found.topic_id != self._topic_id:
            self._forget()
            self._topic_id = found.topic_id

    def _put(self, consumer: Consumer, start: int, stop: int, *, before: bool) -> None:
        messages = read_messages(consumer, self._topic, start, stop)
        rows, known = rows_of(messages), self._known
        with self._lock:
            known.tables.put(rows, before=before)
            if messages:
                first_s = messages[0].timestamp_ms / 1000
                known.whole_from_s = min(known.whole_from_s, first_s)
            if before:
                known.oldest = start
            else:
                known.next = stop
        if messages:
            known.newest_ms = max(known.newest_ms, messages[-1].timestamp_ms)

    def _consumer(self) -> Consumer:
        return make_consumer(
            self._settings,
            group=None,
            client_id=f"{self._experiment}-history",
            traffic=Traffic.CONTROL,
            overrides={"enable.partition.eof": True},
        )
