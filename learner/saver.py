"""Snapshots -> durable checkpoints -> committed offsets, in a thread of its own."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from infra.errors import RollstreamError
from infra.kafka.identity import read_topic_identity
from infra.kafka.open_transactions import OpenTransactions, held_back
from infra.monitoring.reporter import Reporter
from learner.checkpoint import CheckpointError, CheckpointStore
from learner.log_start import LogMismatch, check_identity
from learner.snapshot import LogIdentity, Snapshot, to_files
from learner.trim import Trimmer

GONE_AFTER_S = 5.0
"""How long a topic may be unknown before it is taken for deleted."""

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


class Saver:
    """Saves one snapshot after the other while the learner goes on.

    Attributes:
        failure: why the learner has to stop; None while all is well.
        failed_at_s: when a checkpoint could last not be written; -inf: never.
        saved: how many checkpoints were written.
    """

    def __init__(
        self,
        store: CheckpointStore,
        admin: AdminClient,
        topic: str,
        commit: Callable[[Mapping[int, int]], None],
        trimmer: Trimmer,
        reporter: Reporter,
    ) -> None:
        self.failure: RollstreamError | None = None
        self.failed_at_s = float("-inf")
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
        2. Make sure that the log is still the one that the offsets count in.
        3. Commit to the group, by partition, the checkpoint's next offsets; forward
           only, and none that a durable checkpoint does not hold.
        4. Remove all checkpoints but the two newest.
        5. Delete replay records that neither of those two refers to.

        A crash before 1 is complete leaves the checkpoint before; between 1 and 3 the
        committed offsets stay behind, and nothing follows from it, since a learner
        goes on at its checkpoint's own. A checkpoint that cannot be written is said
        aloud, nothing is committed or deleted, and the next one tries again.
        """
        # Step 1.
        self._store.write(snapshot.epoch, snapshot.number, to_files(snapshot))
        self.saved += 1
        # Step 2.
        found, partitions = read_identity(self._admin, self._topic)
        self._gone_since_s = None
        check_identity(self._topic, vars(snapshot.log), vars(found))
        self._look_at_log(len(snapshot.positions), partitions)
        # Step 3.
        self._commit(snapshot.positions)
        # Step 4.
        self._store.prune()
        # Step 5.
        self._trimmer.checkpointed(snapshot.oldest_offsets)
        self._trimmer.trim()

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
                f"{self._topic}: the topic is gone", "start a new run with --fresh"
            )

    def close(self) -> None:
        """End the thread after what was submitted."""
        self._queue.put(None)

    def _work(self) -> None:
        while (snapshot := self._queue.get()) is not None:
            try:
                self.save(snapshot)
            except CheckpointError as exc:
                self.failed_at_s = time.monotonic()
                self._reporter.event("checkpoint-failed", "alert", str(exc))
            except (KafkaException, TimeoutError) as exc:
                self._not_committed(exc)
            except RollstreamError as exc:
                self.failure = exc
            except Exception as exc:
                _log.exception("unexpected")
                self.failure = RollstreamError(f"a checkpoint failed: {exc!r}")
            finally:
                self._idle.set()
