"""A worker's counters, finished episodes and crashes -> metrics and events."""

from __future__ import annotations

import time

from infra.clock import now_ms
from infra.control.role import RoleContext
from infra.errors import DeliveryError
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.monitoring.event_kinds import EventKind, Severity
from infra.monitoring.repeats import Repeats
from infra.monitoring.reporter import Reporter
from producers.adoption import Adoption
from producers.env_troubles import AGAIN_AT_MOST_S, AGAIN_S, EnvTroubles
from producers.episodes import EpisodeLog
from producers.packing import Packing
from producers.pauses import Pause
from producers.policy import Policy
from producers.rollout import UnrollArrays
from producers.tally import Tally
from producers.worker_stream import WorkerCounts
from schemas.records import PolicyRef
from schemas.topics import worker_name

_EVERY_S = 1.0
_FLUSH_S = 5.0


def report_failure(context: RoleContext, exc: Exception) -> None:
    """Publish why a process whose environments do not start ends."""
    sender = Sender(make_producer(context.settings, client_id=context.client_id))
    kind: EventKind = (
        "evaluator-failed" if context.role == "evaluator" else "worker-failed"
    )
    Reporter(sender, context, -1).event(kind, "alert", str(exc))
    sender.flush(_FLUSH_S)


class WorkerReport:
    """What one worker process has to say of itself.

    Attributes:
        reporter: of the incarnation that there is.
        fetched_bytes: of large policies, by this process; of all incarnations.
    """

    def __init__(self, sender: Sender, context: RoleContext) -> None:
        self._sender = sender
        self._context = context
        self._episodes = EpisodeLog()
        self._due_at_s = 0.0
        self._troubles = EnvTroubles(self.event)
        self._pauses = Repeats(AGAIN_S, AGAIN_AT_MOST_S)
        self._adoption = Adoption(now_ms())
        self._told_losses = False
        self.fetched_bytes = 0
        self.begin(-1, WorkerCounts(), 0)

    def begin(self, incarnation: int, counts: WorkerCounts, env_restarts: int) -> None:
        """Report for an incarnation from now on.

        Args:
            incarnation: its number.
            counts: what it counts.
            env_restarts: how many there were before it.
        """
        self._incarnation = incarnation
        self._counts = counts
        self._env_restarts = env_restarts
        self._fetched_before = self.fetched_bytes
        self._adoption.begin()
        self.reporter = Reporter(self._sender, self._context, incarnation)

    def event(self, kind: EventKind, severity: Severity, reason: str) -> None:
        """Publish something that a person should know."""
        self.reporter.event(kind, severity, reason)

    def give_up(
        self, exc: DeliveryError, lost: int, policy: PolicyRef, env_restarts: int
    ) -> None:
        """Say what will never be delivered, by a producer that still delivers.

        No later record of the stream shows that its last steps are missing.

        Args:
            exc: why.
            lost: steps of all incarnations that are not delivered.
            policy: as for ``publish``, with ``env_restarts``.
            env_restarts: likewise.
        """
        context = self._context
        self._sender = Sender(
            make_producer(context.settings, client_id=context.client_id)
        )
        self.reporter = Reporter(self._sender, context, self._incarnation)
        self.event("worker-failed", "alert", str(exc))
        if lost:
            reason = f"gave up with {lost} steps not delivered"
            self.event("undelivered-steps", "alert", reason)
        self.publish(policy, env_restarts)
        self._sender.flush(_FLUSH_S)

    def idle(self, pause: Pause) -> None:
        """Say why no more is stepped; of something wrong, not each time."""
        if not pause.mend or self._pauses.happens(time.monotonic()):
            self.event("worker-idle", pause.severity, str(pause))

    def acts(self, policy: Policy | None) -> None:
        """Note what acts in the steps to come; None: actions are random."""
        if policy is not None:
            self._adoption.acts(policy.version, now_ms())

    def add(self, arrays: UnrollArrays) -> None:
        """Note an unroll's episodes."""
        self._episodes.add(arrays.finished)

    def packs(self, packing: Packing) -> None:
        """Say, once it is known, what is lost of observations."""
        if self._told_losses or not packing.is_measured:
            return
        self._told_losses = True
        quality = self._context.spec.workers.encoding.quality
        for name, loss in packing.losses.items():
            how = f"{packing.chosen(name).lower()} of quality {quality}"
            reason = f"observations {name!r}: {how}: {loss}"
            self.event("lossy-encoding", "warning", reason)

    def look(self, found: Tally) -> None:
        """Note how good the rows are, and publish what went wrong with others."""
        self._counts.usable_steps = found.usable
        self._counts.unusable_steps = found.unusable
        self._troubles.tell(found)

    def is_due(self) -> bool:
        """Whether a second has passed; a new one begins then."""
        now_s = time.monotonic()
        if now_s < self._due_at_s:
            return False
        self._due_at_s = now_s + _EVERY_S
        return True

    def publish(self, policy: PolicyRef, env_restarts: int) -> None:
        """Publish the counters, and the episodes that ended since the last time.

        Args:
            policy: what acts.
            env_restarts: of all incarnations.
        """
        counts, context = self._counts, self._context
        self.reporter.metrics(
            {
                "env_steps": counts.env_steps,
                "invalid_steps": counts.invalid_steps,
                "unrolls": counts.unrolls,
                "bytes": counts.bytes,
                "waited_credit_s": counts.waited_credit_s,
                "waited_policy_s": counts.waited_policy_s,
                "waited_delivery_s": counts.waited_delivery_s,
                "undelivered_steps": counts.undelivered_steps,
                "dead_letters": counts.dead_letters,
                "vector_steps": counts.vector_steps,
                "usable_steps": counts.usable_steps,
                "unusable_steps": counts.unusable_steps,
                "env_restarts": env_restarts - self._env_restarts,
                "policy_epoch": policy.epoch,
                "policy_version": policy.version,
                "policy_fetched_bytes": self.fetched_bytes - self._fetched_before,
                **self._adoption.take(),
            }
        )
        record = self._episodes.take(
            context.experiment.name,
            context.run_id,
            worker_name(context.index),
            self._incarnation,
            now_ms(),
        )
        if record is not None:
            self.reporter.send(record)
