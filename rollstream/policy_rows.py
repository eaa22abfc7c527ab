"""What is known of an experiment's policies -> one row a version; pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infra.policies.evaluations import Evaluations, Judged
    from infra.policies.shelf import Kept
    from infra.policies.topics import PolicyTopics


@dataclass(frozen=True)
class PolicyRow:
    """One version that can be had.

    Attributes:
        version: its number.
        epoch: the learner that made it.
        train_step: updates made by then.
        env_steps: that it was learnt from; None: not known any more.
        created_at_ms: when, by the learner's clock.
        age_ms: how long ago that is, by this machine's.
        bytes: of its tensors.
        parameters: numbers in them; None: they say nothing readable.
        kept_as: ``current``, ``best``, ``history``: one at least.
        evaluation: None: nobody has evaluated it in the last day.
    """

    version: int
    epoch: int
    train_step: int
    env_steps: int | None
    created_at_ms: int
    age_ms: int
    bytes: int
    parameters: int | None
    kept_as: tuple[str, ...]
    evaluation: Judged | None


@dataclass(frozen=True)
class Overview:
    """All that there is of one run, the newest first.

    Attributes:
        experiment: whose policies.
        run_id: of the run in force.
        has_evaluator: somebody is to find out how good they are.
        rows: one a version.
        gone: versions that are told of, but whose graph or chunks are gone.
        refused: records that cannot be read.
    """

    experiment: str
    run_id: str
    has_evaluator: bool
    rows: tuple[PolicyRow, ...]
    gone: tuple[int, ...] = ()
    refused: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def overview(topics: PolicyTopics, now_s: float) -> Overview:
    """Return what was read of an experiment's topics."""
    published, shelf = topics.published, topics.shelf
    rows = [row_of(kept, topics.evaluations, now_s) for kept in shelf.versions()]
    return Overview(
        experiment=published.experiment.name,
        run_id=published.run_id,
        has_evaluator=published.experiment.spec.evaluator.replicas > 0,
        rows=tuple(reversed(rows)),
        gone=tuple(ref.version for ref in shelf.lost()),
        refused=shelf.refused,
    )


def row_of(kept: Kept, evaluations: Evaluations, now_s: float) -> PolicyRow:
    """Return the row of a version."""
    version = kept.version
    kept_as = {
        "current": kept.is_current,
        "best": kept.is_best,
        "history": kept.in_history,
    }
    return PolicyRow(
        version=version.version,
        epoch=version.epoch,
        train_step=version.train_step,
        env_steps=evaluations.env_steps(version.train_step),
        created_at_ms=version.created_at_ms,
        age_ms=max(int(now_s * 1000) - version.created_at_ms, 0),
        bytes=kept.bytes,
        parameters=kept.parameters,
        kept_as=tuple(name for name, is_so in kept_as.items() if is_so),
        evaluation=evaluations.of(kept.ref),
    )
