"""How far may this worker step? Pure rules on Credit records."""

from __future__ import annotations

from dataclasses import dataclass, field

from infra.errors import RollstreamError
from schemas.experiment import Spec
from schemas.flow import floor_window, least_window
from schemas.records import NO_POLICY, Credit, PolicyRef

_FIRST_POLICY = PolicyRef(0, 0)


class Superseded(RollstreamError):
    """A newer incarnation of this worker exists: this one must stop."""

    def __init__(self, worker: str, ours: int, theirs: int) -> None:
        super().__init__(
            f"{worker}: expected incarnation {ours} to be its newest, found {theirs}",
            "two processes have one index, or this one was taken for dead; it stops",
        )


@dataclass
class CreditGate:
    """The credit of one incarnation, as its worker knows it.

    Rules: (1) only this run's records count; (2) a record of an older learner epoch
    than one seen does not; (3) of those for this incarnation the farthest stands, for
    a delayed record must not take credit back; (4) a record for a newer incarnation
    ends this one; (5) on-policy nothing is done at random: some policy must act, also
    where nobody waits for credit.

    Attributes:
        worker: ``w<index>``.
        run_id: of the run.
        incarnation: whose credit this is.
        allowed_step: steps below this may be taken.
        free: never wait for credit.
        epoch: the newest learner seen; -1 before.
        min_policy: what must act, or a later one.
        least_policy: what must act whatever a learner says.
        grants: how often a record allowed more than all before it, or came from a new
            learner.
    """

    worker: str
    run_id: str
    incarnation: int
    allowed_step: int
    free: bool = False
    epoch: int = -1
    min_policy: PolicyRef = NO_POLICY
    least_policy: PolicyRef = NO_POLICY
    grants: int = field(default=0)

    @classmethod
    def open(cls, spec: Spec, worker: str, run_id: str, incarnation: int) -> CreditGate:
        """Return the gate of a new incarnation, with one floor window of credit."""
        num_steps = spec.workers.unroll_length
        window = floor_window(
            spec.processor.n_step,
            num_steps,
            spec.flow.window,
            least=least_window(spec.learner),
        )
        first = _FIRST_POLICY if spec.learner.traits.is_on_policy else NO_POLICY
        return cls(
            worker=worker,
            run_id=run_id,
            incarnation=incarnation,
            allowed_step=window * num_steps,
            free=spec.flow.mode == "free",
            min_policy=first,
            least_policy=first,
        )

    def take(self, credit: Credit) -> None:
        """Take a learner's record into account; raises Superseded."""
        if credit.run_id != self.run_id or credit.epoch < self.epoch:
            return
        if credit.epoch > self.epoch:
            self.epoch = credit.epoch
            self.min_policy = self.least_policy
            self.grants += 1
        self.min_policy = max(self.min_policy, credit.min_policy)
        ours = credit.allowed.get(self.worker)
        if ours is None:
            return
        if ours.incarnation > self.incarnation:
            raise Superseded(self.worker, self.incarnation, ours.incarnation)
        if ours.incarnation == self.incarnation:
            self.grants += ours.allowed_step > self.allowed_step
            self.allowed_step = max(self.allowed_step, ours.allowed_step)

    def may_act(self, policy: PolicyRef) -> bool:
        """Whether this policy may act; NO_POLICY: whether chance may."""
        return policy >= self.min_policy

    def may_step(self, first_step: int, num_steps: int, policy: PolicyRef) -> bool:
        """Whether an unroll of these steps may be made with this policy."""
        if not self.may_act(policy):
            return False
        return self.free or first_step + num_steps <= self.allowed_step

    def renew(self, spec: Spec, incarnation: int) -> CreditGate:
        """Return the gate of the next incarnation; what is known of learners stays."""
        gate = CreditGate.open(spec, self.worker, self.run_id, incarnation)
        gate.epoch, gate.min_policy = self.epoch, self.min_policy
        return gate
