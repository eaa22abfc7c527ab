"""``rollstream run FILE --from SOURCE``: an experiment that learns from the past."""

from __future__ import annotations

from pathlib import Path

from infra.control.experiments import (
    UnknownExperiment,
    UnreadableExperiment,
    read_experiment,
)
from infra.errors import TopicError
from infra.settings import Settings
from schemas.experiment import Experiment, SpecError, from_values


def from_past(
    settings: Settings, experiment: Experiment, named: str
) -> tuple[Settings, Experiment]:
    """Return an experiment that replays a source, has no workers, and where to run it.

    What the file says of the past that is wanted (``since``, ``episodes``, ``rate``,
    ...) stays.

    Args:
        settings: of this machine.
        experiment: of the file.
        named: an experiment, or the folder of an archive.

    Raises:
        SpecError: it is refused.
        NoSource: it is neither.
    """
    from archive.past_source import find_folder, name_of_experiment

    folder = find_folder(settings, named)
    if folder is None:
        past = {"experiment": name_of_experiment(settings, named), "archive": None}
    else:
        settings, archive = _place(settings, folder.resolve())
        past = {"experiment": None, "archive": archive}
    values = experiment.model_dump(mode="json", by_alias=True)
    values["spec"]["past"] |= past
    values["spec"]["workers"] |= {"replicas": 0, "min": None, "max": None}
    return settings, from_values(values)


def check_past(experiment: Experiment) -> None:
    """Raise SpecError when what a spec says of the past cannot be understood."""
    past = experiment.spec.past
    if not past.is_set:
        return
    from archive.pacing import BadRate, Pace
    from archive.selection import BadSelection, Selection

    try:
        Selection.of(past)
        Pace.parse(past.rate)
    except (BadSelection, BadRate) as exc:
        raise SpecError([f"spec.past: {exc.problem}"]) from exc


def check_sources(settings: Settings, experiment: Experiment) -> None:
    """Raise when a new experiment names a past that is not there.

    Once it is published its past is fixed; so a wrong name must not get there.

    Raises:
        RollstreamError: there is no such experiment, or archive.
    """
    spec, own = experiment.spec, (None, experiment.name)
    others = [s.experiment for s in spec.learner.sources if s.experiment not in own]
    if not spec.past.is_set and not others:
        return
    try:
        read_experiment(settings, experiment.name)
        return  # it goes on, or says why it cannot
    except (UnknownExperiment, UnreadableExperiment, TopicError):
        pass
    if spec.past.is_set:
        from archive.past_source import source_of

        source_of(settings, spec.past).close()
    for name in filter(None, others):
        read_experiment(settings, name)


def _place(settings: Settings, folder: Path) -> tuple[Settings, str]:
    """Return settings whose archives hold a folder, and its name there."""
    archives = settings.archives.resolve()
    if folder != archives and folder.is_relative_to(archives):
        return settings, str(folder.relative_to(archives))
    return settings.model_copy(update={"archives_dir": folder.parent}), folder.name
