"""Publications -> how many versions a policy is behind, across restarts.

Numbers of versions never repeat: a learner that starts again goes on behind the newest
in the topic, while its parameters are those of its checkpoint. What the one before had
published in between is not older than those, though the next number is beyond it. So
versions are counted as if there had been no restart, and numbers are put in their place
by what each epoch was ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from schemas.experiment import LearnerSpec
from schemas.records import PolicyRef, TransitionBatch


@dataclass
class PolicyClock:
    """Counts the versions that a run's parameters have been through.

    Where versions follow from updates alone they are counted whether they could be
    published or not: a resumed learner learns before it has exported its graph.

    Attributes:
        by_updates: whether they do.
        period: updates of a version, where they do.
        now: the version of the parameters as they are; -1: none yet. Where versions
            follow from updates, those of the beginning are version 0.
        updates: made when it was counted.
        ahead: by epoch, how far the numbers that it published are ahead of these.
    """

    by_updates: bool
    period: int = 1
    now: int = -1
    updates: int = 0
    ahead: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: LearnerSpec) -> PolicyClock:
        """Return the clock of a new run."""
        by_updates = spec.policy_interval_ms == 0
        return cls(by_updates, spec.updates_per_policy, 0 if by_updates else -1)

    def is_over(self, updates: int) -> bool:
        """Whether so many updates are a new version."""
        return self.by_updates and updates - self.updates >= self.period

    def updated(self, updates: int) -> None:
        """Count the version that ``is_over`` tells of."""
        self.now, self.updates = self.now + 1, updates

    def published(self, epoch: int, version: int) -> bool:
        """Note what was published; return whether it is counted as a new version."""
        self.now += not self.by_updates
        self.ahead[epoch] = version - self.now
        return not self.by_updates

    def placed(self, batch: TransitionBatch) -> TransitionBatch:
        """Return a batch with the number that its policy's version is counted as."""
        policy = batch.policy
        ahead = self.ahead.get(policy.epoch, 0)
        if not ahead or policy.version < 0:
            return batch
        version = max(policy.version - ahead, 0)
        return replace(batch, policy=PolicyRef(policy.epoch, version))

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps; plain JSON."""
        ahead = {str(epoch): number for epoch, number in self.ahead.items() if number}
        return {"now": self.now, "updates": self.updates, "ahead": ahead}

    def restore(self, state: dict[str, Any], version: int) -> None:
        """Go on from a checkpoint; one that has no clock was at ``version``."""
        self.now = int(state.get("now", max(version, self.now)))
        self.updates = int(state.get("updates", 0))
        ahead = state.get("ahead", {})
        self.ahead = {int(epoch): int(number) for epoch, number in ahead.items()}
