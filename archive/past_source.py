"""What a person names -> a source, what is wanted of it, and its records in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from archive.choosing import Chosen, Plan, Tell, in_order, make_plan
from archive.progress_log import Past, Standing
from archive.recorded import Source
from archive.replay import Records
from archive.selection import Selection
from archive.target import check_target
from archive.topic_source import TopicSource
from infra.control.desired import PublishedExperiment
from infra.errors import OffsetError, RollstreamError
from infra.settings import Settings
from schemas.experiment import PastSpec
from schemas.topics import EXPERIMENT_NAME

_MANIFEST = "manifest.jsonl"


class NoSource(RollstreamError):
    """What was named is neither an experiment nor an archive."""


@dataclass(frozen=True)
class Prepared:
    """A past that can be replayed.

    Attributes:
        past: what is replayed.
        standing: how far it is in the target already; None: not at all.
        plan: what is wanted; None: all that is wanted is in the target.
    """

    past: Past
    standing: Standing | None
    plan: Plan | None


def open_source(settings: Settings, named: str) -> Source:
    """Return the source that an experiment's name, or an archive's folder, means.

    A folder is one that is there, here or among the machine's archives; of one that
    holds the archives of several runs, the newest is meant.

    Raises:
        NoSource: it is neither.
        UnknownExperiment: there is no experiment of that name.
        ArchiveError: the folder holds no archive, or a damaged one.
        MissingLibrary: archives cannot be read here.
    """
    folder = find_folder(settings, named)
    if folder is not None:
        return open_archive(folder)
    return TopicSource(settings, name_of_experiment(settings, named))


def name_of_experiment(settings: Settings, named: str) -> str:
    """Return what is no folder as the name of an experiment; raises NoSource."""
    if not EXPERIMENT_NAME.fullmatch(named):
        raise NoSource(
            "expected the name of an experiment or the folder of an archive, found "
            f"{named[:200]!r}",
            f"archives of this machine are in {settings.archives}",
        )
    return named


def find_folder(settings: Settings, named: str) -> Path | None:
    """Return the folder of an archive that is named; None: it is none.

    What could be the name of an experiment is one, unless it is written as a path.
    """
    if EXPERIMENT_NAME.fullmatch(named):
        return None
    places = (Path(named).expanduser(), settings.archives / named)
    folder = next((each for each in places if each.is_dir()), None)
    if folder is None or (folder / _MANIFEST).exists():
        return folder
    # Names of runs sort by time.
    runs = sorted(path.parent for path in folder.glob(f"*/{_MANIFEST}"))
    return runs[-1] if runs else folder


def open_archive(folder: Path) -> Source:
    """Return an archive; raises as ``open_source`` does."""
    try:
        from archive.archive_source import ArchiveSource
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != "pyarrow":
            raise
        raise MissingLibrary(
            f"{folder}: expected the package pyarrow, which reads archives, found none",
            "pip install 'rollstream[archive]'",
        ) from exc
    return ArchiveSource(folder)


class MissingLibrary(RollstreamError):
    """A library that archives need is not installed."""


def source_of(settings: Settings, past: PastSpec) -> Source:
    """Return the source that a spec names; raises as ``open_source`` does."""
    if past.archive is not None:
        return open_archive(settings.archives / past.archive)
    if past.experiment is None:
        raise NoSource("spec.past: expected an experiment or an archive, found neither")
    return TopicSource(settings, past.experiment)


def prepare(
    settings: Settings,
    source: Source,
    selection: Selection,
    target: PublishedExperiment | None,
    tell: Tell = lambda *_: None,
) -> Prepared:
    """Find out what is wanted, and how far it is; writes nothing.

    Args:
        settings: where the target is.
        source: what is replayed.
        selection: what is wanted of it.
        target: None: there is none yet.
        tell: told of reading that takes long.

    Raises:
        NothingChosen: nothing is wanted of the source.
        OtherReplay: the target holds something else.
        OffsetError: what is still to be replayed has expired.
    """
    info = source.info
    past = Past(
        source=info.identity,
        experiment=info.experiment.name,
        run_id=info.run_id,
        topic=info.topic,
        selection=selection.to_json(),
        bounds=dict(source.bounds()),
    )
    standing = None if target is None else check_target(settings, target, past)
    if standing is not None and standing.done:
        return Prepared(past, standing, None)
    if standing is not None:
        _check_is_there(source, standing)
    ends = (standing or Standing.new(past)).ends
    return Prepared(past, standing, make_plan(source, selection, ends, tell))


def missing(source: Source) -> list[str]:
    """Return in words what of a source had expired before anybody kept it."""
    info = source.info
    return [
        f"{info.topic}[{gap.partition}]: offsets {gap.first_offset} to "
        f"{gap.next_offset - 1} of {info.identity} have expired"
        for gap in source.gaps()
    ]


def records_of(source: Source, plan: Plan | None) -> Records:
    """Return what gives the records of a source from any standing on; None: none."""

    def records(standing: Standing) -> Iterator[Chosen]:
        if plan is None:
            return
        _check_is_there(source, standing)
        ends = {number: plan.selection.end(e) for number, e in standing.ends.items()}
        for recorded in in_order(source, standing.positions, ends):
            yield plan.choose(recorded)

    return records


def _check_is_there(source: Source, standing: Standing) -> None:
    """Raise OffsetError unless a source has all that is left."""
    bounds, positions = source.bounds(), standing.positions
    for partition, end in standing.ends.items():
        at = positions.get(partition, 0)
        first, last = bounds.get(partition, (0, 0))
        if at >= end or first <= at <= end <= last:
            continue
        missing = f"{at} to {first}" if first > at else f"{last} to {end}"
        raise OffsetError(
            f"{source.info.topic}[{partition}]: expected offsets {at} to {end}, which "
            f"are still to be replayed, found that {missing} are not there",
            "replay from an archive or topic that has them; or begin anew, into an "
            "experiment of another name",
        )
