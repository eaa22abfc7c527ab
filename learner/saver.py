"""Snapshots -> durable checkpoints -> committed offsets, in a thread of its own."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from infra.errors import RollstreamError
from infra.kafka.identity import read_topic_identity
from infra.kafka.open_transactions import OpenTransactions, held_back
from infra.monitoring.reporter import Reporter
from learner.checkpoint import CheckpointError, CheckpointStore
from learner.log_start import ANOTHER_LOG, LogMismatch, check_identity
from learner.snapshot import LogIdentity, Snapshot, to_files
from learner.trim import Trimmer

GONE_AFTER_S = 5.0
"""How long a topic may be unknown before it is taken for deleted."""

FIRST_RETRY_S = 2.0
LONGEST_RETRY_S = 60.0
_TIMEOUT_S = 5.0
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_log = logging.getLogger("rollstream")


def read_identity(
    admin: AdminClient, topic: str, timeout_s: float = _TIMEOUT_S
) -> tuple[LogIdentity, int]:
    """Ask the broker which cluster and topic this is, and for its partitions.

    Raises:
        KafkaException: it does not answer, or there is no such topic.
    """
    cluster_id = admin.list_topics(topic, timeout=timeout_s).cluster_id
    found = read_topic_identity(admin, topic, timeout_s)
    if found is None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    return LogIdentity(str(cluster_id), found.topic_id), found.partitions


@dataclass(frozen=True)
class OtherLog:
    """The log of a further source: its offsets are committed, and nothing is deleted.

    Attributes:
        key: the source's in a snapshot.
        topic: its name.
        commit: next offsets to this learner's group.
    """

    key: str | None
    topic: str
    commit: Callable[[Mapping[int, int]], None]


class Saver:
    """Saves one snapshot after the other while the learner goes on.

    Attributes:
        failure: why the learner has to stop; None while all is well.
        retry_at_s: when to try again, in monotonic time, as the last checkpoint could
            not be written; None: it could.
        saved: how many checkpoints were written.
    """

    def __init__(
        self,
        store: CheckpointStore,
        admin: AdminClient,
        topic: str,
        commit: Callable[[Mapping[int, int]], None],
        trimmer: Trimmer | None,
        reporter: Reporter,
        others: Sequence[OtherLog] = (),
    ) -> None:
        """Begin to wait for snapshots.

        Args:
            store: where they go.
            admin: a client.
            topic: the first source's.
            commit: its next offsets to the group.
            trimmer: of the topic; None: it is another experiment's.
            reporter: for what a person should know.
            others: further sources.
        """
        self.failure: RollstreamError | None = None
        self.retry_at_s: float | None = None
        self._failed_in_a_row = 0
        self.saved = 0
        self._gone_since_s: float | None = None
        self._partitions = -1
        self._transactions = OpenTransactions(topic)
        self._store = store
        self._admin = admin
        self._topic = topic
        self._commit = commit
        self._trimmer = trimmer
        self._reporter = reporter
        self._others = others
        self._looked_at = topic
        self._queue: queue.Queue[Snapshot | None] = queue.Queue(maxsize=1)
        self._idle = threading.Event()
        self._idle.set()
        threading.Thread(target=self._work, name="saver", daemon=True).start()

    @property
    def is_idle(self) -> bool:
        """Whether the last snapshot is done with."""
        return self._idle.is_set()

    def submit(self, snapshot: Snapshot) -> None:
        """Save a snapshot; only when idle."""
        self._idle.clear()
        self._queue.put_nowait(snapshot)

    def wait(self, timeout_s: float) -> bool:
        """Wait for what was submitted; return whether it is done with."""
        return self._idle.wait(timeout_s)

    def save(self, snapshot: Snapshot) -> None:
        """Make a snapshot durable, and only then let go of what it replaces.

        1. Write the checkpoint: files, hashes, one rename, all flushed to the disk.
        2. Make sure that each log is still the one that the offsets count in.
        3. Commit to the group, by partition, the checkpoint's next offsets; forward
           only, and none that a durable checkpoint does not hold.
        4. Remove all checkpoints but the two newest.
        5. Delete replay records that neither of those two refers to; those of the
           experiment's own topic only.

        A crash before 1 is complete leaves the checkpoint before; between 1 and 3 the
        committed offsets stay behind, and nothing follows from it, since a learner
        goes on at its checkpoint's own. A checkpoint that cannot be written is said
        aloud, nothing is committed or deleted, and it is tried again, ever later.
        """
        # Step 1.
        self._store.write(snapshot.epoch, snapshot.number, to_files(snapshot))
        self._note_saved()
        # Step 2.
        partitions = self._check_log(self._topic, snapshot.log)
        others = [(log, snapshot.of(log.key)) for log in self._others]
        for log, source in others:
            if source is not None:
                self._check_log(log.topic, source.log)
        self._gone_since_s = None
        self._look_at_log(len(snapshot.positions), partitions)
        # Step 3.
        self._commit(snapshot.positions)
        for log, source in others:
            if source is not None:
                log.commit(source.positions)
        # Step 4.
        self._store.prune()
        # Step 5.
        if self._trimmer is not None:
            self._trimmer.checkpointed(snapshot.oldest_offsets)
            self._trimmer.trim()

    def _check_log(self, topic: str, expected: LogIdentity) -> int:
        """Make sure that a topic is the one it was; return its partitions."""
        self._looked_at = topic
        found, partitions = read_identity(self._admin, topic)
        check_identity(topic, vars(expected), vars(found))
        return partitions

    def _look_at_log(self, expected: int, partitions: int) -> None:
        """Tell of partitions that nobody reads, and of records that are held back."""
        if partitions not in (expected, self._partitions):
            self._partitions = partitions
            self._reporter.event(
                "partitions-changed",
                "alert",
                f"{self._topic}: expected {expected} partitions, found "
                f"{partitions}: what others write there is not learnt from",
            )
        waiting = held_back(self._admin, self._topic, range(expected))
        for news in self._transactions.judge(waiting, time.monotonic()):
            self._reporter.event("open-transaction", "alert", news)

    def _note_saved(self) -> None:
        self.saved += 1
        if failed := self._failed_in_a_row:
            self._failed_in_a_row, self.retry_at_s = 0, None
            reason = f"a checkpoint was written again, after {failed} that were not"
            self._reporter.event("checkpoint-recovered", "info", reason)

    def _note_failed(self, error: CheckpointError) -> None:
        """Tell, and try again later each time: a full disk stays full for hours."""
        delay_s = min(
            FIRST_RETRY_S * 2.0 ** min(self._failed_in_a_row, 9), LONGEST_RETRY_S
        )
        self._failed_in_a_row += 1
        self.retry_at_s = time.monotonic() + delay_s
        reason = f"{error}; it is tried again in {delay_s:g} s"
        self._reporter.event("checkpoint-failed", "alert", reason)

    def _not_committed(self, error: Exception) -> None:
        """Wait for the brokers: the next checkpoint commits. But not for a topic."""
        now_s = time.monotonic()
        if not isinstance(error, KafkaException) or error.args[0].code() not in _GONE:
            _log.warning("offsets are not committed: %s", error)
        elif self._gone_since_s is None:
            # A broker that has just started may not know its topics yet.
            self._gone_since_s = now_s
        elif now_s - self._gone_since_s > GONE_AFTER_S:
            self.failure = LogMismatch(
                f"{self._looked_at}: the topic is gone", ANOTHER_LOG
            )

    def close(self) -> None:
        """End the thread after what was submitted."""
        self._queue.put(None)

    def _work(self) -> None:
        while (snapshot := self._queue.get()) is not None:
            try:
                self.save(snapshot)
            except CheckpointError as exc:
                self._note_failed(exc)
            except (KafkaException, TimeoutError) as exc:
                self._not_committed(exc)
            except RollstreamError as exc:
                self.failure = exc
            except Exception as exc:
                _log.exception("unexpected")
                self.failure = RollstreamError(f"a checkpoint failed: {exc!r}")
            finally:
                self._idle.set()
