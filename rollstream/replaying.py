"""A past, wherever it comes from -> an experiment: what `replay` and `import` share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from infra.control.coordination import Coordination
from infra.control.desired import PublishedExperiment
from infra.control.experiments import UnknownExperiment, read_experiment
from infra.control.launching import launch
from infra.control.members import ensure_experiment_topics
from infra.control.role import RoleContext
from infra.errors import RollstreamError
from infra.settings import Settings
from rollstream.errors import BadInput
from rollstream.overrides import apply_overrides
from rollstream.replay_display import ReplayDisplay
from schemas.experiment import Experiment, SpecError, from_values

if TYPE_CHECKING:
    from archive.pacing import Pace
    from archive.past_source import Prepared
    from archive.progress_log import Standing
    from archive.recorded import Source
    from archive.replay import Counts
    from archive.selection import Selection


@dataclass
class Wish:
    """What a person wants to be replayed.

    Attributes:
        into: the name of an experiment; a new one, or one that holds this past.
        overrides: ``path=value`` of a new one's spec.
        must_resume: it is there in part already, or it is refused.
    """

    into: str
    selection: Selection
    pace: Pace
    overrides: Sequence[str] = ()
    must_resume: bool = False


@dataclass
class Replayed:
    """What was done, and how far it is.

    Attributes:
        resumed: something was there already.
        seconds: that sending took.
    """

    source: str
    into: str
    gaps: list[dict[str, int]] = field(default_factory=list)
    standing: Standing | None = None
    counts: Counts | None = None
    resumed: bool = False
    seconds: float = 0.0

    def figures(self) -> dict[str, Any]:
        """Return what ``--json`` prints; counts are of this process."""
        standing, counts = self.standing, self.counts
        env_steps = counts.env_steps if counts else 0
        return {
            "source": self.source,
            "into": self.into,
            "records": counts.records if counts else 0,
            "env_steps": env_steps,
            "blank_steps": counts.blank_steps if counts else 0,
            "repeated_records": counts.repeated if counts else 0,
            "steps_per_s": round(env_steps / self.seconds) if self.seconds else 0,
            "total_env_steps": standing.env_steps if standing else 0,
            "gaps": self.gaps,
            "done": bool(standing and standing.done),
            "resumed": self.resumed,
        }

    def in_words(self) -> str:
        """Return one line for a person."""
        standing, counts = self.standing, self.counts
        steps = f"{standing.env_steps if standing else 0:,} env steps"
        if counts is None:
            return f"{self.into} has all of {self.source} already: {steps}"
        rate = counts.env_steps / max(self.seconds, 1e-9)
        added = f"{counts.env_steps:,} of them now, {rate:,.0f}/s"
        blank = f", {counts.blank_steps:,} blank" if counts.blank_steps else ""
        return f"{self.into} has {self.source}: {steps} ({added}{blank})"


def bring_in(
    settings: Settings,
    source: Source,
    wish: Wish,
    display: ReplayDisplay,
    done: Replayed,
) -> None:
    """Send a past into an experiment, which is launched where it is not there.

    What is done is in ``done`` also when it is interrupted; called again it goes on.

    Raises:
        NothingChosen: nothing is wanted of it; nothing was written.
        OtherReplay: the experiment holds something else.
        RollstreamError: whatever else a person has to look at.
    """
    from archive.past_source import missing, prepare

    for line in missing(source):
        display.say(line, style="yellow")
    target = _known(settings, wish)
    found = prepare(settings, source, wish.selection, target, display.tell)
    if wish.must_resume and found.standing is None:
        raise RollstreamError(
            f"experiment {wish.into}: expected a replay of {found.past.source} to go "
            "on with, found none",
            "leave --resume out: it goes on all the same where there is one",
        )
    done.gaps = [asdict(gap) for gap in source.gaps()]
    done.standing, done.resumed = found.standing, found.standing is not None
    if found.standing is not None and found.standing.done:
        return
    if target is None:
        target = _launched(settings, without_workers(source.info.experiment, wish))
    _send(settings, target, source, found, wish, done, display)


def _send(
    settings: Settings,
    target: PublishedExperiment,
    source: Source,
    found: Prepared,
    wish: Wish,
    done: Replayed,
    display: ReplayDisplay,
) -> None:
    from archive.past_source import records_of
    from archive.replay import replay
    from archive.replay_report import ReplayReport

    context = RoleContext(
        settings, target.experiment, target.run_id, "replayer", 0, target.offset
    )
    with ReplayReport(context, source.info) as report:
        began_s = time.monotonic()

        def watch(standing: Standing, counts: Counts) -> None:
            done.standing, done.counts = standing, counts
            done.seconds = time.monotonic() - began_s
            report.watch(standing, counts)
            display.watch(standing, counts)

        done.standing, ends = replay(
            settings,
            target,
            found.past,
            records_of(source, found.plan),
            pace=wish.pace,
            watch=watch,
        )
        report.done(ends)


def _known(settings: Settings, wish: Wish) -> PublishedExperiment | None:
    """Return the target that there is; None: it has to be launched."""
    try:
        known = read_experiment(settings, wish.into)
    except UnknownExperiment:
        return None
    if known.experiment.spec.past.is_set:
        raise BadInput(
            f"experiment {wish.into}: expected one whose spec names no past, found one "
            "that replays by itself",
            "launch that, or replay into an experiment of another name",
        )
    if wish.overrides and _changed(known.experiment, wish) != known.experiment:
        raise BadInput(
            f"experiment {wish.into} is there already: expected no --set that changes "
            f"it, found {' '.join(wish.overrides)}",
            "change it with `rollstream launch`, or replay into one of another name",
        )
    ensure_experiment_topics(settings, known.experiment)
    return known


def _launched(settings: Settings, experiment: Experiment) -> PublishedExperiment:
    with closing(Coordination(settings)) as coordination:
        coordination.start()
        return launch(settings, coordination, experiment).published


def without_workers(experiment: Experiment, wish: Wish) -> Experiment:
    """Return what an experiment of the past of another one is; raises SpecError."""
    values = experiment.model_dump(mode="json", by_alias=True)
    values["metadata"]["name"] = wish.into
    spec = values["spec"]
    spec["workers"] |= {"replicas": 0, "min": None, "max": None}
    spec["learner"]["sources"] = []
    spec |= {"past": {}, "archive": False, "state": "running"}
    found = from_values(apply_overrides(values, wish.overrides))
    if workers := found.spec.workers.most_replicas:
        raise SpecError(
            [
                f"spec.workers.replicas: expected 0, found {workers}: the streams of a "
                "past keep their workers' names"
            ]
        )
    return found


def _changed(experiment: Experiment, wish: Wish) -> Experiment:
    values = experiment.model_dump(mode="json", by_alias=True)
    return from_values(apply_overrides(values, wish.overrides))
