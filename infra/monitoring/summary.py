"""What there is to say of a run at its end."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

from infra.monitoring.metric_records import COUNT_LIMIT, mean_of
from infra.monitoring.progress import Finish, Progress


@dataclass(frozen=True)
class Summary:
    """A run in numbers; the JSON object of ``rollstream run --json``.

    Attributes:
        experiment: its name.
        state: ``finished``, ``stopped`` or ``failed``.
        env_steps: valid steps that the learner took in, over all resumes.
        updates: gradient steps, over all resumes.
        policy_version: the version that passed, else the newest published.
        eval_return_mean: of the evaluation that passed, else of the newest.
        lost_steps: steps the log does not hold; must be 0.
        recovered_steps: once lost, filled later.
        duplicate_steps: seen again and left out.
        stale_steps: not learnt from, for too old a policy acted in them.
        unrestorable_rows: buffer rows a restored learner found gone from the log.
        dead_letters: records that could not be read, or were too large to send.
        undelivered_steps: steps that workers took and could not deliver.
        wall_s: from the launch to the end, this time.
        env_steps_per_s: of this time.
        resumed: it went on from a checkpoint.
        reached: the target return was reached, or there was none.
        reason: why it ended.
        expired_records: that the log deleted before they were read.
        evaluated_version: of the evaluation that ``eval_return_mean`` is of.
    """

    experiment: str
    state: str
    env_steps: int
    updates: int
    policy_version: int
    eval_return_mean: float | None
    lost_steps: int
    recovered_steps: int
    duplicate_steps: int
    unrestorable_rows: int
    dead_letters: int
    undelivered_steps: int
    wall_s: float
    env_steps_per_s: float
    resumed: bool
    reached: bool
    reason: str
    expired_records: int = 0
    evaluated_version: int | None = None
    stale_steps: int = 0

    @property
    def policy(self) -> str:
        """The policy version, and which one that is: in words."""
        if self.evaluated_version == self.policy_version:
            return f"{self.policy_version} (evaluated)"
        words = f"{self.policy_version} (the learner's newest)"
        if self.evaluated_version is None:
            return words
        return f"{words}, {self.evaluated_version} (evaluated)"

    def to_json(self) -> str:
        """Return one JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """Return what ``to_json`` wrote, a newer one's too; raises ValueError."""
        found = _SUMMARIES.validate_json(text, strict=True)
        counts = [each for each in vars(found).values() if isinstance(each, int)]
        if any(abs(each) >= COUNT_LIMIT for each in counts):
            raise ValueError("expected counts of 64 bits")
        return found


# It comes from a topic: whoever shows it must be able to.
_SUMMARIES = TypeAdapter(Summary)


def summarise(
    experiment: str,
    progress: Progress,
    finish: Finish | None,
    *,
    state: str,
    reason: str,
    wall_s: float,
    env_steps_before: int,
) -> Summary:
    """Fold a run's metrics into its summary.

    Args:
        experiment: its name.
        progress: everything the roles have said, their last words included.
        finish: why it is over; None when it was interrupted.
        state: of the experiment.
        reason: in words.
        wall_s: how long it took, this time.
        env_steps_before: what the learner had taken in before this time.
    """
    shown = finish.evaluation if finish else None
    newest = progress.last_evaluation
    if shown is None and newest is not None:
        shown = newest[1]
    version = int(progress.learner("policy_version"))
    if finish is not None and finish.evaluation is not None:
        version = finish.evaluation.policy.version
    return Summary(
        experiment=experiment,
        state=state,
        env_steps=progress.env_steps,
        updates=int(progress.learner("updates")),
        policy_version=version,
        eval_return_mean=round(mean_of(shown.returns.array()), 3) if shown else None,
        lost_steps=int(progress.learner("lost_steps")),
        recovered_steps=int(progress.learner("recovered_steps")),
        duplicate_steps=int(progress.learner("duplicate_steps")),
        stale_steps=int(progress.learner("stale_steps")),
        unrestorable_rows=int(progress.learner("unrestorable_rows")),
        dead_letters=progress.total("processor", "dead_letters")
        + progress.total("worker", "dead_letters")
        + int(progress.learner("dead_letters")),
        undelivered_steps=progress.total("worker", "undelivered_steps"),
        wall_s=round(wall_s, 1),
        env_steps_per_s=round(
            max(0, progress.env_steps - env_steps_before) / max(wall_s, 1e-9), 1
        ),
        resumed=bool(progress.learner("resumed")),
        reached=finish.reached if finish else False,
        reason=reason,
        expired_records=progress.total("processor", "expired_records")
        + int(progress.learner("expired_records")),
        evaluated_version=shown.policy.version if shown else None,
    )
