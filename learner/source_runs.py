"""``learner.sources`` of a spec -> the runs whose transitions are learnt from.

Without torch: a learner that has no workers of its own waits here for a description.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from pydantic.alias_generators import to_camel

from infra.control.experiments import (
    UnknownExperiment,
    UnreadableExperiment,
    read_experiment,
)
from infra.control.role import RoleContext
from infra.errors import Hopeless, RollstreamError
from infra.kafka.reading import latest_by_key
from infra.settings import Settings
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.experiment import Spec
from schemas.past_specs import SourceSpec
from schemas.records import EnvDescription, Member, SpaceField
from schemas.topics import MEMBERS, REPLAY, topic_name

_log = logging.getLogger("rollstream")


class SourceMismatch(Hopeless):
    """What another experiment's processors make cannot be learnt from here."""


@dataclass(frozen=True)
class SourceRun:
    """A run whose transitions are learnt from.

    Attributes:
        name: of its experiment.
        run_id: the learner's own, or the one in force when it started.
        share: of all rows that are learnt from, by weight; all of them make 1.
        is_own: whether it is the learner's own.
        spec: of the experiment, as it is in force.
    """

    name: str
    run_id: str
    share: float
    is_own: bool
    spec: Spec

    @property
    def topic(self) -> str:
        """What is read."""
        return topic_name(REPLAY, self.name)

    @property
    def is_live(self) -> bool:
        """Whether its rows are made by workers that follow this learner's policies."""
        return self.is_own and self.spec.workers.most_replicas > 0

    @property
    def key(self) -> str | None:
        """What a checkpoint calls it: None is the learner's own."""
        return None if self.is_own else self.name


def find_runs(context: RoleContext) -> list[SourceRun]:
    """Return what is learnt from, the learner's own first.

    Raises:
        RollstreamError: there is none of a name.
        SourceMismatch: one is there twice.
    """
    sources = context.spec.learner.sources or (SourceSpec(),)
    total = sum(source.weight for source in sources)
    found = [_find(context, source, source.weight / total) for source in sources]
    if len({run.name for run in found}) < len(found):
        raise SourceMismatch(
            f"learner.sources: expected each experiment once, found "
            f"{context.experiment.name} by its name and without one",
            "remove one of the two",
        )
    return sorted(found, key=lambda run: not run.is_own)


def find_env(
    settings: Settings, run: SourceRun, *, of_any_run: bool = False
) -> EnvDescription | None:
    """Return what a worker or replayer of a run says of its environment.

    None: nobody has said it yet. With ``of_any_run`` one of another run of its
    experiment is good enough.
    """
    for message in latest_by_key(settings, topic_name(MEMBERS, run.name)).values():
        try:
            member = decode(message.value, Member)
        except SchemaError as exc:
            _log.warning("%s: a member is passed over: %s", message.topic, exc)
            continue
        is_told_by = member.role in ("worker", "replayer")
        is_meant = of_any_run or member.run_id == run.run_id
        if is_told_by and is_meant and member.env is not None:
            return member.env
    return None


def check_returns(spec: Spec, run: SourceRun) -> None:
    """Make sure that a run's returns are of this scale and discount.

    A state has one value. How many rewards are in a return may differ.

    Raises:
        SourceMismatch: they are not.
    """
    mine, theirs = spec.processor, run.spec.processor
    for name in ("gamma", "reward_scale"):
        if getattr(mine, name) != getattr(theirs, name):
            raise SourceMismatch(
                f"learner.sources: {run.name}: expected processor.{to_camel(name)} "
                f"{getattr(mine, name):g} as here, found {getattr(theirs, name):g}",
                "replay its past into an experiment with this one's",
            )


def check_spaces(settings: Settings, run: SourceRun, env: EnvDescription) -> None:
    """Make sure that a run has the spaces that are learnt with, where they are known.

    Raises:
        SourceMismatch: it has others.
    """
    found = find_env(settings, run)
    if found is None:
        return
    for what in ("observation", "action"):
        mine, theirs = getattr(env, what), getattr(found, what)
        if list(map(_unbounded, mine)) != list(map(_unbounded, theirs)):
            raise SourceMismatch(
                f"learner.sources: {run.name}: expected the {what} space of "
                f"{env.env_id}, {_shown(mine)}, found that of {found.env_id}, "
                f"{_shown(theirs)}",
                "learn from experiments with the same spaces only",
            )


def _find(context: RoleContext, source: SourceSpec, share: float) -> SourceRun:
    own = context.experiment.name
    if source.experiment in (None, own):
        return SourceRun(own, context.run_id, share, True, context.spec)
    try:
        published = read_experiment(context.settings, source.experiment)
    except (UnknownExperiment, UnreadableExperiment) as exc:
        raise RollstreamError(f"learner.sources: {exc.problem}", exc.mend) from exc
    return SourceRun(
        source.experiment, published.run_id, share, False, published.experiment.spec
    )


def _unbounded(field: SpaceField) -> SpaceField:
    """Leave out bounds: of what is observed they say nothing that is learnt with."""
    return replace(field, low=None, high=None)


def _shown(fields: tuple[SpaceField, ...]) -> str:
    return ", ".join(
        f"{field.name or 'plain'} {field.kind} {field.dtype}{list(field.shape)}"
        + (f" of {list(field.n)}" if field.n else "")
        for field in fields
    )
