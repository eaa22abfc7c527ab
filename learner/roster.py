"""Members and credits -> who works for this run, and whether a newer learner does."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

from infra.control.role import RoleContext
from infra.errors import KafkaUnavailable, RollstreamError
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import Message, to_message
from infra.monitoring.reporter import Reporter
from schemas.codec import decode_any
from schemas.errors import SchemaError
from schemas.records import Credit, EnvDescription, Member
from schemas.topics import CREDITS, MEMBERS, worker_name

_MESSAGES_A_POLL = 200
_POLL_S = 0.05
_TIMEOUT_S = 30.0


class NewerLearner(RollstreamError):
    """Another learner of this run has started since; this one must stop at once."""


class Roster:
    """Follows the members and credits topics.

    Attributes:
        env: what the first worker, or replayer of a past, says of its environment; or
            what was found elsewhere before one did.
        incarnations: of each worker that has started, the newest.
        born_at_ms: the broker's time of the run's first Member that is still there.
        is_replayed: a past is replayed into the run.
    """

    def __init__(self, context: RoleContext, reporter: Reporter, epoch: int) -> None:
        self.env: EnvDescription | None = None
        self.incarnations: dict[str, int] = {}
        self.born_at_ms: int | None = None
        self.is_replayed = False
        self._context = context
        self._reporter = reporter
        self._epoch = epoch
        self._removed: dict[str, int] = {}
        self._members = context.topic(MEMBERS)
        self._consumer = make_consumer(
            context.settings,
            group=None,
            client_id=f"{context.client_id}-roster",
            traffic=Traffic.CONTROL,
        )
        # A newer learner registers first, and then sends credits each second; older
        # credits tell nothing.
        self._consumer.assign(
            [
                TopicPartition(self._members, 0, OFFSET_BEGINNING),
                TopicPartition(context.topic(CREDITS), 0, OFFSET_END),
            ]
        )

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take in what is new.

        Raises:
            NewerLearner: a learner of a later epoch was seen.
        """
        for raw in self._consumer.consume(_MESSAGES_A_POLL, timeout_s):
            if raw.error() is None:
                self._take(to_message(raw))

    def wait_for_own(self, timeout_s: float = _TIMEOUT_S) -> int:
        """Poll until the run's Members are read; return ``born_at_ms``.

        Raises:
            KafkaUnavailable: not even this learner's own Member can be read.
        """
        deadline = time.monotonic() + timeout_s
        while self.born_at_ms is None:
            self.poll(_POLL_S)
            if time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"{self._members}: expected this learner's own record, found "
                    f"none within {timeout_s:g} s",
                    "check that the brokers answer",
                )
        return self.born_at_ms

    def take_removed(self) -> dict[str, int]:
        """Return the workers whose Member was deleted since the last call.

        With each comes what all its incarnations are below.
        """
        removed, self._removed = self._removed, {}
        return {w: at for w, at in removed.items() if w not in self.incarnations}

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def _take(self, message: Message) -> None:
        if message.tombstone:
            self._forget(message.key, message.offset)
            return
        try:
            record = decode_any(message.value)
        except SchemaError as exc:
            self._reporter.event(
                "unreadable-record",
                "warning",
                f"{message.topic}[0]: offset {message.offset}: {exc}",
            )
            return
        if getattr(record, "run_id", None) != self._context.run_id:
            return
        if isinstance(record, Credit):
            self._check_epoch(record.epoch)
        elif isinstance(record, Member):
            self._take_member(record, message)

    def _forget(self, key: str, offset: int) -> None:
        role, _, index = key.partition("/")
        if role == "worker" and index.isdigit():
            worker = worker_name(int(index))
            self.incarnations.pop(worker, None)
            self._removed[worker] = offset

    def _take_member(self, member: Member, message: Message) -> None:
        offset = message.offset
        if self.born_at_ms is None:
            self.born_at_ms = message.timestamp_ms
        if member.role == "learner" and member.index == self._context.index:
            self._check_epoch(offset)
        elif member.role == "worker":
            worker = worker_name(member.index)
            self.incarnations[worker] = max(offset, self.incarnations.get(worker, -1))
            if member.env is not None:
                self._compare(worker, member.env)
        elif member.role == "replayer":
            self.is_replayed = True
            if member.env is not None:
                self._compare(f"replayer/{member.index}", member.env)

    def _check_epoch(self, epoch: int) -> None:
        if epoch > self._epoch:
            raise NewerLearner(
                f"this learner is of epoch {self._epoch}, and one of epoch {epoch} "
                "has started: only the newest may go on"
            )

    def _compare(self, who: str, env: EnvDescription) -> None:
        if self.env is None:
            self.env = env
        elif not env.has_same_spaces(self.env):
            self._reporter.event(
                "worker-spaces-differ",
                "alert",
                f"{who}: expected the spaces of {self.env.env_id} as the first "
                "worker found them, found others; its batches will be refused",
            )
        elif env.versions != self.env.versions:
            self._reporter.event(
                "worker-versions-differ",
                "warning",
                f"{who}: expected {dict(self.env.versions)}, found "
                f"{dict(env.versions)}",
            )
