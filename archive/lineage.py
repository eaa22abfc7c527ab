"""Records of lineage -> what a policy was trained on, back to whoever acted; pure.

A learner says which unrolls its batches were made of; a replay says which past an
experiment's unrolls are. From one to the next one arrives at experience that nobody
replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from archive.minari_ids import DATASET_PREFIX
from archive.progress_log import selection_of
from infra.errors import RollstreamError
from schemas.records import DataRange, PolicyRef, ReplayProgress, TrainedOn
from schemas.topics import PREFIX, TRAJECTORIES


class NotRecorded(RollstreamError):
    """What a policy was trained on is not known."""


@dataclass(frozen=True)
class Told:
    """What the topic of lineage of one experiment says.

    Attributes:
        experiment: whose.
        run_id: the run in force; None: it was deleted.
        trained: what policies were trained on.
        replays: what was replayed into it.
    """

    experiment: str
    run_id: str | None
    trained: tuple[TrainedOn, ...] = ()
    replays: tuple[ReplayProgress, ...] = ()


Ask = Callable[[str], Told]
"""An experiment's name -> what its topic says."""


@dataclass(frozen=True)
class Origin:
    """Experience of one experiment, and where it has it from.

    Attributes:
        experiment: its name; of a dataset ``minari``.
        run_id: which run; of a dataset its id; None: not known.
        kind: ``workers`` acted in environments, ``replay`` of other experience,
            ``dataset``, ``again`` one that is shown further up already, ``forgotten``
            one that was deleted.
        selection: what was chosen of it, as canonical JSON; "": not chosen by a replay.
        data: its unrolls, by topic and partition.
        blank_steps: of it, sent without what is in them.
        done: the replay has come to its end.
        origins: of what was replayed into it.
    """

    experiment: str
    run_id: str | None
    kind: str
    selection: str
    data: tuple[DataRange, ...]
    blank_steps: int = 0
    done: bool = True
    origins: tuple[Origin, ...] = ()

    @property
    def env_steps(self) -> int:
        """How many."""
        return sum(each.env_steps for each in self.data)

    def roots(self) -> Iterable[Origin]:
        """Yield the experience that nobody replayed."""
        if not self.origins:
            yield self
        for origin in self.origins:
            yield from origin.roots()


@dataclass(frozen=True)
class Lineage:
    """What a policy was trained on.

    Attributes:
        experiment: whose policy.
        run_id: of which run.
        version: the policy's; None: the newest of which it is known.
        policy: the policy whose record says so: that of ``version``, or the first
            later one, so that it was trained on at most this.
        train_step: updates made by then.
        origins: by experiment whose processors made the batches.
    """

    experiment: str
    run_id: str
    version: int | None
    policy: PolicyRef
    train_step: int
    created_at_ms: int
    origins: tuple[Origin, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the record is the very version's."""
        return self.version in (None, self.policy.version)

    @property
    def env_steps(self) -> int:
        """How many steps it was trained on."""
        return sum(origin.env_steps for origin in self.origins)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "experiment": self.experiment,
            "run_id": self.run_id,
            "version": self.version,
            "policy": asdict(self.policy),
            "is_exact": self.is_exact,
            "train_step": self.train_step,
            "created_at_ms": self.created_at_ms,
            "env_steps": self.env_steps,
            "trained_on": [_json(origin) for origin in self.origins],
        }


def trace(experiment: str, version: int | None, ask: Ask) -> Lineage:
    """Return what a policy was trained on.

    Args:
        experiment: whose.
        version: of the policy; None: the newest of which it is known.
        ask: is asked for each experiment once.

    Raises:
        NotRecorded: no record says so.
    """
    known: dict[str, Told] = {}

    def told(name: str) -> Told:
        if name not in known:
            known[name] = ask(name)
        return known[name]

    own = told(experiment)
    record = _record(own, version)
    by_experiment: dict[str, list[DataRange]] = {}
    for each in record.data:
        by_experiment.setdefault(_experiment_of(each.topic), []).append(each)
    origins = []
    for name, data in sorted(by_experiment.items()):
        run_id = own.run_id if name == experiment else told(name).run_id
        origins.append(_origin(name, run_id, "", tuple(data), told, frozenset()))
    return Lineage(
        experiment=experiment,
        run_id=record.run_id,
        version=version,
        policy=record.policy,
        train_step=record.train_step,
        created_at_ms=record.created_at_ms,
        origins=tuple(origins),
    )


def _record(own: Told, version: int | None) -> TrainedOn:
    found = sorted(
        (each for each in own.trained if each.run_id == own.run_id),
        key=lambda each: each.policy,
    )
    if not found:
        raise NotRecorded(
            f"experiment {own.experiment}: expected a policy of run {own.run_id} and "
            "a checkpoint after it, found none yet",
            "wait for the learner's next checkpoint",
        )
    if version is None:
        return found[-1]
    later = [each for each in found if each.policy.version >= version]
    if not later:
        raise NotRecorded(
            f"experiment {own.experiment}: expected a policy version up to "
            f"{found[-1].policy.version}, found {version}: there is no checkpoint "
            "after it",
            "wait for the learner's next checkpoint, or leave --policy-version out",
        )
    return later[0]


def _origin(
    name: str,
    run_id: str | None,
    selection: str,
    data: tuple[DataRange, ...],
    told: Ask,
    above: frozenset[tuple[str, str | None]],
    blank_steps: int = 0,
    done: bool = True,
) -> Origin:
    origins: list[Origin] = []
    if any(each.topic.startswith(DATASET_PREFIX) for each in data):
        kind = "dataset"
    elif (name, run_id) in above:
        kind = "again"
    else:
        for each in _replays(told(name), run_id):
            origins.append(
                _origin(
                    each.source_experiment,
                    each.source_run_id,
                    _chosen(each),
                    each.data,
                    told,
                    above | {(name, run_id)},
                    each.blank_steps,
                    each.done,
                )
            )
        is_forgotten = not origins and told(name).run_id is None
        kind = "replay" if origins else "forgotten" if is_forgotten else "workers"
    return Origin(
        name, run_id, kind, selection, data, blank_steps, done, tuple(origins)
    )


def _chosen(record: ReplayProgress) -> str:
    """Return what was chosen, without where the past ended."""
    try:
        return selection_of(record)[0]
    except (ValueError, AttributeError, TypeError):  # not one of our writers
        return record.selection


def _replays(told: Told, run_id: str | None) -> list[ReplayProgress]:
    found = [each for each in told.replays if run_id in (None, each.run_id)]
    return sorted(found, key=lambda each: each.source)


def _experiment_of(topic: str) -> str:
    """Return whose trajectories a topic has; the topic itself: nobody's."""
    inner = topic.removeprefix(PREFIX).removesuffix(f".{TRAJECTORIES.suffix}")
    is_ours = f"{PREFIX}{inner}.{TRAJECTORIES.suffix}" == topic
    return inner if is_ours else topic


def _json(origin: Origin) -> dict[str, Any]:
    return {
        "experiment": origin.experiment,
        "run_id": origin.run_id,
        "kind": origin.kind,
        "selection": origin.selection or None,
        "env_steps": origin.env_steps,
        "blank_steps": origin.blank_steps,
        "done": origin.done,
        "data": [asdict(each) for each in origin.data],
        "replayed_from": [_json(each) for each in origin.origins],
    }
