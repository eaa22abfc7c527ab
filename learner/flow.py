"""Members and arrivals -> Credit records."""

from __future__ import annotations

from infra.clock import now_ms
from infra.control.role import RoleContext
from infra.kafka.delivery import Sender
from learner.credits import CreditWindows
from learner.dedup import Ledger
from learner.rate_limiter import RateLimiter
from learner.roster import Roster
from schemas.codec import encode
from schemas.records import NO_POLICY, Credit, PolicyRef
from schemas.topics import CREDITS, worker_index, worker_partition


class Flow:
    """Lets workers go on as far as their windows and the limiter allow."""

    def __init__(
        self,
        context: RoleContext,
        epoch: int,
        sender: Sender,
        roster: Roster,
        windows: CreditWindows,
        limiter: RateLimiter,
        ledger: Ledger,
    ) -> None:
        self._context = context
        self._epoch = epoch
        self._sender = sender
        self._roster = roster
        self._windows = windows
        self._limiter = limiter
        self._ledger = ledger

    def follow_members(self) -> dict[str, int]:
        """Take in who has started or was removed.

        Returns:
            By worker, the incarnation before which its streams go on no more.

        Raises:
            NewerLearner: a learner of a later epoch was seen.
        """
        self._roster.poll()
        for worker, incarnation in self._roster.incarnations.items():
            next_step = self._ledger.next_step(worker, incarnation)
            self._windows.started(worker, incarnation, next_step)
        removed = self._roster.take_removed()
        for worker in removed:
            self._windows.stopped(worker)
        spec = self._context.spec
        live = max(spec.workers.replicas, len(self._windows.workers()))
        if not spec.learner.deterministic:  # when they are seen depends on time
            self._limiter.widen(spec, live)
        return self._roster.incarnations | removed

    def least_policy(self, version: int, published: int) -> PolicyRef:
        """Return the oldest policy that workers may still act with.

        Only on-policy, and only of this learner's own: what one before has published is
        known to be superseded once this one has published.

        Args:
            version: the newest.
            published: how many this learner has.
        """
        learner = self._context.spec.learner
        limit = learner.policy_lag_limit
        if not (learner.traits.is_on_policy and published and limit is not None):
            return NO_POLICY
        return PolicyRef(self._epoch, max(version - limit, 0))

    def grant(self, now_s: float, *, room: float, min_policy: PolicyRef) -> None:
        """Send a Credit when it is worth one; never when the flow is free.

        Args:
            now_s: monotonic seconds.
            room: how many more unrolls the limiter takes.
            min_policy: the oldest that workers may still act with.
        """
        if self._context.spec.flow.mode == "free":
            return
        allowed = self._windows.grant(now_s, room=room)
        if not allowed:
            return
        context = self._context
        credit = Credit(
            experiment=context.experiment.name,
            run_id=context.run_id,
            learner=context.member_key,
            epoch=self._epoch,
            min_policy=min_policy,
            allowed=allowed,
            produced_at_ms=now_ms(),
        )
        self._sender.send(context.topic(CREDITS), encode(credit), context.member_key)

    def forgive(self, partitions: set[int]) -> None:
        """Give new credit to the workers of partitions where records expired."""
        num_partitions = self._context.spec.topics.partitions
        for worker in self._windows.workers():
            if worker_partition(worker_index(worker), num_partitions) in partitions:
                self._windows.forgive(worker)
        partitions.clear()
