"""``rollstream export``: experience as a dataset that other libraries read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from infra.errors import RollstreamError
from infra.printable import printable
from rollstream.lines import check_choice
from rollstream.options import Json
from rollstream.replay_display import ReplayDisplay
from rollstream.selection_options import (
    Episodes,
    PolicyVersions,
    Since,
    Until,
    Workers,
    parse_selection,
)

if TYPE_CHECKING:
    from archive.episode_cutter import Bounds
    from archive.episodes import Episode
    from archive.recorded import Recorded, Source
    from archive.selection import Selection
    from infra.settings import Settings
    from schemas.tensors import Array

    Wanted = Callable[[Recorded], Array | None]

EPILOG = "Example: rollstream export cartpole-dqn --episodes 'return>=200'"
_FORMATS = ("minari", "parquet")
Figures = dict[str, Any]


class NothingToExport(RollstreamError):
    """There is no whole episode of what is wanted."""


@dataclass(frozen=True)
class Exporting:
    """What is exported.

    Attributes:
        settings: where the cluster is, for a source that is an experiment.
        source: what is read.
        bounds: what of it there was at the start.
        selection: what is wanted of that.
        wanted: which rows of a record those are.
    """

    settings: Settings
    source: Source
    bounds: Bounds
    selection: Selection
    wanted: Wanted


def export(
    source: Annotated[
        str, typer.Argument(help="An experiment, or the folder of an archive.")
    ],
    to_format: Annotated[
        str, typer.Option("--format", help="minari, or parquet: a row a step.")
    ] = "minari",
    dataset_id: Annotated[
        str | None,
        typer.Option(help="Of minari; else rollstream/EXPERIMENT-v0."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="minari: the folder of datasets, else MINARI_DATASETS_PATH or that of "
            "Minari; parquet: the file, else EXPERIMENT.parquet."
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    policy_version: PolicyVersions = None,
    worker: Workers = None,
    episodes: Episodes = None,
    as_json: Json = False,
) -> None:
    """Write experience as a dataset of Minari, or as one Parquet file.

    A dataset has whole episodes only: of what is cut off, by the log or by what is
    chosen, nothing. Exit code: 0, 1 on errors and where there is nothing to export, 2
    when the words say nothing.
    """
    check_choice("format", to_format, _FORMATS)
    if dataset_id is not None and to_format != "minari":
        raise typer.BadParameter("expected --format minari", param_hint="--dataset-id")
    from archive.minari_ids import DATASET_ID
    from archive.past_source import MissingLibrary, find_folder, open_source
    from infra.settings import load_settings
    from rollstream.machine import running, with_modules

    if dataset_id is not None and not DATASET_ID.fullmatch(dataset_id):
        raise typer.BadParameter(
            f"expected NAME/x-v0, found {dataset_id[:80]!r}", param_hint="--dataset-id"
        )
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    settings = with_modules(load_settings(), None)
    selection = parse_selection(since, until, policy_version, worker, episodes)
    if find_folder(settings, source) is None:
        settings = running(settings)
    try:
        with closing(open_source(settings, source)) as opened:
            figures = _export(
                settings, opened, selection, to_format, dataset_id, out, console
            )
    except ModuleNotFoundError as exc:
        raise MissingLibrary(
            f"expected what datasets are written with, found no {exc.name}",
            "pip install 'rollstream[archive]'",
        ) from exc
    print(json.dumps(figures)) if as_json else _show(figures)


def _export(
    settings: Settings,
    source: Source,
    selection: Selection,
    to_format: str,
    dataset_id: str | None,
    out: Path | None,
    console: Console,
) -> Figures:
    from archive.choosing import make_plan
    from archive.past_source import missing

    info = source.info
    with ReplayDisplay(console) as display:
        for line in missing(source):
            display.say(line, style="yellow")
        bounds = dict(source.bounds())
        ends = {partition: end for partition, (_, end) in bounds.items()}
        plan = make_plan(source, selection, ends, display.tell)
        bounds = {
            partition: (first, plan.ends[partition])
            for partition, (first, _) in bounds.items()
        }

        def wanted(recorded: Recorded) -> Array | None:
            from schemas.records import Unroll

            record = recorded.record
            if selection.is_all or not isinstance(record, Unroll):
                return None
            return selection.choose(recorded.address, record, plan.episodes)

        told = _told(bounds, wanted, display)
        work = Exporting(settings, source, bounds, selection, told)
        if to_format == "parquet":
            figures = _to_parquet(work, out or Path(f"{info.experiment.name}.parquet"))
        else:
            figures = _to_minari(work, dataset_id, out)
    figures = {"source": info.identity, "format": to_format, **figures}
    return {**figures, "gaps": [asdict(gap) for gap in source.gaps()]}


def _told(bounds: Bounds, wanted: Wanted, display: ReplayDisplay) -> Wanted:
    """Return what does as ``wanted``, and shows how far the reading is."""
    total = sum(end - first for first, end in bounds.values())
    before, at = 0, -1

    def tell(recorded: Recorded) -> Array | None:
        nonlocal before, at
        address = recorded.address
        if address.partition != at:
            before += bounds[at][1] - bounds[at][0] if at in bounds else 0
            at = address.partition
        done = before + address.offset - bounds[at][0] + 1
        display.tell("exporting", done, total)
        return wanted(recorded)

    return tell


def _to_parquet(work: Exporting, path: Path) -> Figures:
    from archive.parquet_export import export_parquet

    # Of a whole source also rows that are not valid, as in its archive.
    rows = export_parquet(path, work.source, work.bounds, work.wanted)
    return {"path": str(path), "rows": rows}


def _to_minari(work: Exporting, dataset_id: str | None, out: Path | None) -> Figures:
    from archive.episode_cutter import EpisodeCutter, read_episodes
    from archive.minari_export import export_minari
    from archive.minari_ids import dataset_folder, datasets_root
    from rollstream.export_facts import facts_of, recoverable, seeds_of

    info = work.source.info
    if info.env is None:
        raise NothingToExport(
            f"{info.identity}: expected a worker that said what its spaces are, found "
            "none",
            "`--format parquet` needs none",
        )
    name = dataset_id or f"rollstream/{info.experiment.name}-v0"
    root = (out or datasets_root()).expanduser().absolute()
    cutter = EpisodeCutter()
    episodes = read_episodes(work.source, work.bounds, cutter, work.wanted)
    export_minari(
        dataset_folder(root, name),
        name,
        _at_least_one(episodes, info.identity),
        info.env,
        recover=recoverable(work.settings, info),
        seed=seeds_of(info),
        facts=facts_of(info, work.selection),
    )
    return {"dataset_id": name, "path": str(root / name), **asdict(cutter.counts)}


def _at_least_one(episodes: Iterable[Episode], identity: str) -> Iterator[Episode]:
    count = 0
    for episode in episodes:
        count += 1
        yield episode
    if not count:
        raise NothingToExport(
            f"{identity}: expected a whole episode of what is wanted, found none",
            "choose more of it, or wait for the first to end",
        )


def _show(figures: Mapping[str, Any]) -> None:
    if figures["format"] == "parquet":
        print(f"{printable(figures['path'])}: {figures['rows']:,} rows")
        return
    print(
        f"{figures['dataset_id']}: {figures['episodes']:,} episodes, "
        f"{figures['env_steps']:,} steps, in {printable(figures['path'])}"
    )
    print(
        f"left out: {figures['not_chosen']:,} not chosen, {figures['unfinished']:,} "
        f"unfinished, {figures['broken']:,} broken"
    )
