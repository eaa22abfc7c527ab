"""The metrics of an experiment that learns from the past -> when all of it is learnt.

Pure: what is told at different moments counts only once it has settled.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.monitoring.metric_records import mean_of
from infra.monitoring.progress import Finish, Progress
from schemas.experiment import Spec
from schemas.records import PolicyRef

SETTLED_MS = 2_500
"""For so long, by its own reports, a learner has had nothing to do."""


class PastEnd:
    """Judges one run, from moment to moment.

    One without workers: what is replayed, by a role of its own or by `rollstream
    replay`, is all that will ever come.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._place: tuple[object, ...] = ()
        self._since_ms = 0

    def judge(self, progress: Progress, lag: Mapping[str, int | None]) -> Finish | None:
        """Return why a run is over, or None while there is something left to do.

        1. Its replayer has sent all that is wanted.
        2. Processors have acknowledged all of that.
        3. The learner has taken in all transitions, and may learn no more from them.
        4. Its newest policy that an evaluator takes is evaluated, or one after that;
           once more where it reached the target.
        5. None of it has changed while the learner reported for SETTLED_MS.
        """
        spec = self._spec
        if spec.workers.most_replicas or not _is_all_read(progress, lag):
            return None
        if spec.evaluator.replicas and not self._is_evaluated(progress):
            return None
        learner = progress.points["learner", 0]
        updates = progress.learner("updates")
        place = (learner.incarnation, updates, progress.env_steps, newest(progress))
        if place != self._place:
            self._place, self._since_ms = place, learner.produced_at_ms
        if learner.produced_at_ms - self._since_ms < SETTLED_MS:
            return None
        steps = f"{progress.env_steps:,} env steps"
        reason = f"the past is learnt: {steps}, {updates:,.0f} updates"
        if not updates:
            least = spec.learner.least_rows
            reason = f"the past is too short: {steps}, and learning begins at {least:,}"
        return Finish(reason, spec.stop.mean_return is None)

    def _is_evaluated(self, progress: Progress) -> bool:
        last, target = newest(progress), self._spec.stop.mean_return
        every = self._spec.evaluator.every_versions
        # That version 0, of which all begins, is evaluated says nothing of the past.
        wanted = last.version - last.version % every or last.version
        # A newer one does as well: it may be gone before an evaluator sees it. Of
        # whichever epoch: numbers do not repeat.
        found = [e for _, e in progress.evaluations if e.policy.version >= wanted]
        first = [e for e in found if not e.confirmation]
        if not first:
            return False
        if target is None or mean_of(first[-1].returns.array()) < target:
            return True
        policy = first[-1].policy
        return any(e.confirmation and e.policy == policy for e in found)


def newest(progress: Progress) -> PolicyRef:
    """Return the newest policy that the learner has published."""
    epoch, version = (
        progress.learner("policy_epoch"),
        progress.learner("policy_version"),
    )
    return PolicyRef(int(epoch), int(version))


def _is_all_read(progress: Progress, lag: Mapping[str, int | None]) -> bool:
    replayer = progress.points.get(("replayer", 0))
    if replayer is None or not replayer.values.get("done"):
        return False
    acknowledged = {each.partition: each for each in progress.positions("processor")}
    for end in replayer.positions:
        found = acknowledged.get(end.partition)
        if found is None or found.committed < end.position:
            return False
    if lag.get("learner") != 0 or ("learner", 0) not in progress.points:
        return False
    return not progress.learner("can_learn") and newest(progress).version >= 0
