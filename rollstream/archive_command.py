"""``rollstream archive``: a run's trajectories, kept as Parquet files."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from infra.errors import RollstreamError
from infra.printable import printable
from infra.settings import Settings, load_settings
from rollstream.archive_display import ArchiveDisplay
from rollstream.errors import EXIT_ERROR
from rollstream.interrupts import EXIT_INTERRUPTED, EXIT_TERMINATED, leaves_soon
from rollstream.machine import running
from rollstream.options import Json

if TYPE_CHECKING:
    from archive.archiving import Archiving
    from archive.recorded import SourceInfo

EPILOG = "Example: rollstream archive cartpole-dqn --follow"

_STOP_S = 8.0
"""What has been read becomes a part when it is interrupted; that may take so long."""


def archive(
    source: Annotated[
        str, typer.Argument(help="An experiment; with --verify also a folder.")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.1, help="With --follow: a part each so many seconds.")
    ] = 60.0,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder; else one of the run, in ROLLSTREAM_ARCHIVES."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every file of an archive instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Keep the trajectories of an experiment's run as Parquet files, a row a step.

    Every record once, whatever is killed when; run again, it adds what is new. Exit
    code: 0 done, 1 an error or a damaged file, 130 after Ctrl-C, with what is done.
    """
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    settings = load_settings()
    with _needs_arrow():
        if verify:
            raise typer.Exit(_verify(settings, source, out, console, as_json=as_json))
        code = _archive(running(settings), source, follow, every, out, console, as_json)
    raise typer.Exit(code)


@contextmanager
def _needs_arrow() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != "pyarrow":
            raise
        raise RollstreamError(
            "expected the package pyarrow, which writes and reads archives, found none",
            "pip install 'rollstream[archive]'",
        ) from exc


def _archive(
    settings: Settings,
    name: str,
    follow_it: bool,
    every_s: float,
    out: Path | None,
    console: Console,
    as_json: bool,
) -> int:
    from archive.archiving import Archiving, Listener
    from archive.following import follow
    from archive.parts import use_one_thread
    from archive.topic_source import TopicSource

    use_one_thread()
    opened = [TopicSource(settings, name)]
    info = opened[0].info
    path = out or settings.archives / name / info.run_id
    began_s = time.monotonic()
    with _told_to_stop() as stop, ArchiveDisplay(console, follow_it) as display:
        archiving = Archiving(
            lambda: opened.pop() if opened else TopicSource(settings, name),
            path,
            Listener(
                stop.is_set,
                on_gap=display.warn,
                on_record=lambda: display.tick(archiving.counts),
            ),
        )
        try:
            display.begin(archiving.behind())
            if follow_it:
                follow(
                    archiving,
                    stop.wait,
                    lambda behind: display.show(archiving.counts, behind),
                    every_s,
                )
            else:
                archiving.run()
            behind = archiving.behind()
            display.show(archiving.counts, behind)
        finally:
            archiving.close()
    found = _figures(path, info, archiving, behind, time.monotonic() - began_s)
    print(json.dumps(found)) if as_json else _show(console, found)
    return stop.exit_code


def _figures(
    path: Path,
    info: SourceInfo,
    archiving: Archiving,
    behind: Mapping[int, int],
    seconds: float,
) -> dict[str, Any]:
    counts = archiving.counts
    return {
        "archive": str(path),
        "source": info.identity,
        "records": counts.records,
        "env_steps": counts.env_steps,
        "rows": counts.rows,
        "parts": counts.parts,
        "bytes": counts.bytes,
        "bytes_per_row": round(counts.bytes / max(counts.rows, 1), 2),
        "repeats": counts.repeats,
        "gap_records": counts.gap_records,
        "behind_records": sum(behind.values()),
        "seconds": round(seconds, 2),
        "rows_per_s": round(counts.rows / max(seconds, 1e-9)),
    }


def _show(console: Console, found: Mapping[str, Any]) -> None:
    rows = {
        "archive": found["archive"],
        "added": f"{found['records']:,} records, {found['env_steps']:,} env steps, "
        f"{found['parts']} parts, {found['bytes'] / 1e6:,.1f} MB "
        f"({found['bytes_per_row']:g} bytes a row)",
        "left out": f"{found['repeats']:,} repeats",
        "expired": f"{found['gap_records']:,} offsets before they were archived",
        "left": f"{found['behind_records']:,} records",
    }
    for name, value in rows.items():
        console.print(f"{name:<9} {printable(str(value))}", markup=False)


class _Stop:
    """Whether a person asked to stop, and what the exit code is then."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.is_set = self._event.is_set
        self.wait = self._event.wait
        self.exit_code = 0

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        terminated = number == signal.SIGTERM
        self.exit_code = EXIT_TERMINATED if terminated else EXIT_INTERRUPTED
        self._event.set()


@contextmanager
def _told_to_stop() -> Iterator[_Stop]:
    """Let Ctrl-C finish the part that is being written; not for ever."""
    stop = _Stop()
    numbers = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, stop.on_signal) for number in numbers}
    try:
        with leaves_soon(_STOP_S):
            yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _verify(
    settings: Settings, named: str, out: Path | None, console: Console, *, as_json: bool
) -> int:
    from archive.verify import verify

    shown = _progress(console)
    found = [verify(path, shown) for path in _folders(settings, named, out)]
    if as_json:
        print(json.dumps([asdict(each) for each in found]))
    else:
        for each in found:
            state = "damaged" if each.problems else "fine"
            console.print(
                printable(
                    f"{each.folder}: {state}: {each.parts} parts, {each.records:,} "
                    f"records, {each.rows:,} rows, {each.bytes / 1e6:,.1f} MB"
                ),
                *(f"  {printable(problem)}" for problem in each.problems),
                sep="\n",
                markup=False,
            )
    return EXIT_ERROR if any(each.problems for each in found) else 0


def _progress(console: Console) -> Callable[[int, int], None]:
    def show(done: int, of: int) -> None:
        if console.is_terminal:
            console.print(f"checked {done} of {of} parts", end="\r")

    return show


def _folders(settings: Settings, named: str, out: Path | None) -> list[Path]:
    from archive.manifest import NAME

    for folder in (out or Path(named).expanduser(), settings.archives / named):
        if (folder / NAME).is_file():
            return [folder]
    found = sorted(
        path.parent
        for place in {out or Path(named).expanduser(), settings.archives / named}
        for path in place.glob(f"*/{NAME}")
    )
    if not found:
        raise RollstreamError(
            f"expected the folder of an archive, or an experiment that has one in "
            f"{settings.archives}, found {named!r}",
            "make one with `rollstream archive EXPERIMENT`",
        )
    return found
