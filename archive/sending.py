"""Records, one by one -> an experiment's trajectories, in transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from archive.choosing import Chosen
from archive.pacing import Pace
from archive.progress_log import Past, Standing
from archive.room import Room
from archive.streams import SentStreams
from archive.target import check_target, read_unfinished
from archive.transactions import Transactions
from infra.control.desired import PublishedExperiment
from infra.kafka.dead_letters import REINJECTED
from infra.settings import Settings
from schemas.codec import encode
from schemas.records import SourceRef, StreamEnd, Unroll
from schemas.topics import (
    LINEAGE,
    PREFIX,
    TRAJECTORIES,
    topic_name,
    worker_index,
    worker_partition,
)

REPLAYED = "rollstream-replayed"
"""The header of a replayed record; its value is the address that it had."""

TRANSACTION_S = 0.5
TRANSACTION_BYTES = 8 << 20
# Also the transaction of a process that waits is over soon.
_LONGEST_WAIT_S = 0.2
_ROOM_POLL_S = 0.25
_WATCH_S = 0.1
_PACE = "its pace"
_CLOSED = "the end of what is replayed"

Records = Callable[[Standing], Iterator[Chosen]]
"""What is to be sent from a standing's positions on."""


@dataclass
class Counts:
    """What this process has done.

    Attributes:
        records: sent and committed, ends of streams included.
        bytes: of those.
        env_steps: rows of those that were wanted.
        blank_steps: rows of those without what is in them.
        repeated: records that the source had twice; sent once.
        waiting: what is waited for; "": nothing.
    """

    records: int = 0
    bytes: int = 0
    env_steps: int = 0
    blank_steps: int = 0
    repeated: int = 0
    waiting: str = ""

    def add(self, more: Counts) -> None:
        """Take in what was committed since."""
        self.records += more.records
        self.bytes += more.bytes
        self.env_steps += more.env_steps
        self.blank_steps += more.blank_steps
        self.repeated += more.repeated


Watch = Callable[[Standing, Counts], None]
"""Called several times a second with what is committed; what it raises ends it."""


@dataclass
class Sending:
    """Sends records while it is the only one to.

    Attributes:
        standing: how far it is, with what is not committed yet.
        committed: how far it is for sure.
        ends: by partition of the target, the offset behind its last record.
    """

    settings: Settings
    target: PublishedExperiment
    past: Past
    counts: Counts
    standing: Standing = field(init=False)
    committed: Standing = field(init=False)
    ends: dict[int, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Become the only one, and find out how far it is."""
        name = self.target.experiment.name
        self._trajectories = topic_name(TRAJECTORIES, name)
        self._lineage = topic_name(LINEAGE, name)
        self._partitions = self.target.experiment.spec.topics.partitions
        self._streams = SentStreams()
        self._under_way = Counts()
        self._opened_s = 0.0
        self._transactions = Transactions(self.settings, f"{PREFIX}{name}.replay")
        found = check_target(self.settings, self.target, self.past)
        self.standing = found or Standing.new(self.past)
        self.committed = self.standing.copy()
        if found is not None:
            self._streams, self.ends = read_unfinished(self.settings, self.target)
        self._room = Room(self.settings, name)
        self._room.look()

    def close(self) -> None:
        """Abort what is not committed, and leave the broker."""
        self._transactions.abandon()
        self._room.close()

    def run(self, records: Records, pace: Pace, watch: Watch) -> None:
        """Send what is left, and that it is done."""
        watch(self.committed, self.counts)
        if self.standing.done:
            return
        watched_s = time.monotonic()
        for chosen in records(self.standing):
            if self.standing.passed(chosen.address):
                continue
            self._wait_for_pace(chosen, pace, watch)
            self.take(chosen, pace, watch)
            if self._is_due():
                self.commit()
            if time.monotonic() - watched_s >= _WATCH_S:
                watched_s = time.monotonic()
                watch(self.committed, self.counts)
        self.finish()
        watch(self.committed, self.counts)

    def take(self, chosen: Chosen, pace: Pace, watch: Watch) -> None:
        """Send a record, once there is room for it, and take note of it."""
        record, address = chosen.record, chosen.address
        wanted = record if isinstance(record, Unroll) else None
        place = self._streams.take(record) if record else None
        if place == "repeated":
            self._under_way.repeated += 1
            chosen = Chosen(address, None)
        elif record is not None:
            self._send(record, address, place == "late", pace, watch)
            self._under_way.env_steps += chosen.env_steps
            self._under_way.blank_steps += chosen.blank_steps
            pace.sent(chosen.env_steps)
        self.standing.add(address, wanted, chosen.env_steps, chosen.blank_steps)

    def commit(self) -> None:
        """Commit what was sent, together with how far it is."""
        if not self._transactions.is_open and not self.standing.done:
            return
        name, run_id = self.target.experiment.name, self.target.run_id
        progress = encode(self.standing.to_record(name, run_id))
        self._transactions.send(self._lineage, progress, self.past.key, 0)
        self._transactions.commit()
        self.committed = self.standing.copy()
        for (topic, partition), end in self._transactions.ends.items():
            if topic == self._trajectories:
                self.ends[partition] = end
        self.counts.add(self._under_way)
        self._under_way = Counts()

    def finish(self) -> None:
        """Close the streams that are open, and write that it is done."""
        name, run_id = self.target.experiment.name, self.target.run_id
        for end in self._streams.ends(name, run_id, _CLOSED):
            self._write(encode(end), end.worker, {})
        self.standing.finish()
        self.commit()

    def _send(
        self,
        record: Unroll | StreamEnd,
        address: SourceRef,
        is_late: bool,
        pace: Pace,
        watch: Watch,
    ) -> None:
        target = self.target
        sent = replace(record, experiment=target.experiment.name, run_id=target.run_id)
        value = encode(sent)
        rows = sent.num_steps * sent.num_envs if isinstance(sent, Unroll) else 0
        partition = self._partition(record.worker)
        self._wait_for_room(partition, len(value), rows, pace, watch)
        headers: dict[str, str | bytes | None] = {REPLAYED: str(address)}
        if is_late:
            # For processors: it stands alone, and what it belongs to may be over.
            headers[REINJECTED] = str(address.offset)
        self._write(value, record.worker, headers)
        self._room.sent(partition, len(value), rows)

    def _write(
        self, value: bytes, worker: str, headers: dict[str, str | bytes | None]
    ) -> None:
        if not self._transactions.is_open:
            self._opened_s = time.monotonic()
        partition = self._partition(worker)
        self._transactions.send(self._trajectories, value, worker, partition, headers)
        self._under_way.records += 1
        self._under_way.bytes += len(value)

    def _partition(self, worker: str) -> int:
        return worker_partition(worker_index(worker), self._partitions)

    def _is_due(self) -> bool:
        if not self._transactions.is_open:
            return False
        age_s = time.monotonic() - self._opened_s
        return age_s >= TRANSACTION_S or self._under_way.bytes >= TRANSACTION_BYTES

    def _wait_for_pace(self, chosen: Chosen, pace: Pace, watch: Watch) -> None:
        if chosen.record is None:
            return
        at_ms, paused_s = chosen.record.produced_at_ms, 0.0
        while (wait_s := pace.wait_s(at_ms, time.monotonic())) > 0:
            if wait_s > _LONGEST_WAIT_S:
                self.commit()
            paused_s += _LONGEST_WAIT_S if pace.is_paused else 0.0
            time.sleep(min(wait_s, _LONGEST_WAIT_S))
            self.counts.waiting = _PACE
            watch(self.committed, self.counts)
        self.counts.waiting = ""
        pace.put_off(paused_s)

    def _wait_for_room(
        self, partition: int, size: int, rows: int, pace: Pace, watch: Watch
    ) -> None:
        began_s = time.monotonic()
        while self._room.full(partition, size, rows, self._streams.num_open):
            self.commit()
            self._room.look()
            waiting = self._room.full(partition, size, rows, self._streams.num_open)
            if not waiting:
                break
            self.counts.waiting = waiting
            watch(self.committed, self.counts)
            time.sleep(_ROOM_POLL_S)
        if self.counts.waiting:
            self.counts.waiting = ""
            pace.put_off(time.monotonic() - began_s)
