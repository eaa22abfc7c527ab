"""``rollstream logs``: what the roles of an experiment have written on this machine."""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from infra.clock import now_ms
from infra.errors import RollstreamError
from infra.log_files import LogFile, find_logs
from infra.log_lines import LEVELS, LogLine
from infra.printable import printable
from infra.settings import load_settings
from rollstream.lines import check_choice, check_experiment
from rollstream.log_display import make_show
from rollstream.log_places import find_places, newest_logs
from rollstream.since import parse_since
from schemas.role_parts import ROLES

EPILOG = "Example: rollstream logs cartpole-dqn worker/0 -f --level warning"
DEFAULT_COUNT = 50
POLL_S = 0.2
_LOOK_EVERY = 5  # polls: for logs of roles that are new


@dataclass(frozen=True)
class RolePattern:
    """Which roles are asked for; None: whichever."""

    role: str | None = None
    index: int | None = None

    def fits(self, who: tuple[str, int]) -> bool:
        """Whether a role is one of them."""
        return self.role in (None, who[0]) and self.index in (None, who[1])


def logs(
    experiment: Annotated[str, typer.Argument(help="The experiment's name.")],
    role: Annotated[
        str | None, typer.Argument(metavar="ROLE[/INDEX]", help="Only of these.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option("-n", min=0, help="How many old lines (50; all with --since)."),
    ] = None,
    level: Annotated[
        str, typer.Option(help="debug, info, warning, error: no less than that.")
    ] = "debug",
    since: Annotated[
        str | None, typer.Option(help="30s, 10m, 2h, 1d ago, or ISO 8601 with a zone.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print lines of JSON on stdout, only that.")
    ] = False,
) -> None:
    """Show what the roles of the newest run have logged here, merged by time.

    Logs of roles that run on other hosts stay there; stderr names them. Raw text that
    was written to stdout or stderr counts as `info`, of a crash as `error`. Exit code:
    0 done, 1 there are no logs of it here, 130 after Ctrl-C.
    """
    check_experiment(experiment)
    check_choice("level", level, [name.lower() for name in LEVELS])
    least = LEVELS[level.upper()]
    since_ms = parse_since(since, now_ms()) if since else 0
    wanted = parse_role(role)
    if count is None and since is None:
        count = DEFAULT_COUNT
    places = find_places(load_settings(), experiment)
    for note in places.notes(wanted.fits):
        print(f"rollstream: {printable(note)}", file=sys.stderr)
    found = _matching(places.directory, wanted)
    if not found and not follow:
        raise RollstreamError(
            f"experiment {experiment}: expected logs of {role or 'its roles'} in "
            f"{places.directory}, found none",
            "look on the host where it runs, and at its ROLLSTREAM_DATA_DIR",
        )
    show = make_show(experiment, as_json=as_json)
    files = {path: LogFile(path, *who) for who, path in found.items()}
    lines = last_lines(files.values(), count, since_ms, least, to_end=not follow)
    for line in lines:
        show(line)
    if not lines and not follow:
        print(f"rollstream: no such lines of {experiment}", file=sys.stderr)
    if follow:

        def look() -> dict[tuple[str, int], Path]:
            return _matching(newest_logs(load_settings(), experiment), wanted)

        for line in new_lines(files, look):
            if line.severity >= least:
                show(line)


def parse_role(text: str | None) -> RolePattern:
    """Return what ``ROLE`` or ``ROLE/INDEX`` asks for."""
    if text is None:
        return RolePattern()
    role, slash, index = text.partition("/")
    if slash and not index.isdecimal():
        raise typer.BadParameter(f"expected ROLE or ROLE/INDEX, found {text!r}")
    check_choice("role", role, list(ROLES))
    return RolePattern(role, int(index) if slash else None)


def _matching(directory: Path, wanted: RolePattern) -> dict[tuple[str, int], Path]:
    return {who: p for who, p in find_logs(directory).items() if wanted.fits(who)}


def last_lines(
    files: Iterable[LogFile],
    count: int | None,
    since_ms: int,
    least: int,
    *,
    to_end: bool,
) -> list[LogLine]:
    """Return the last lines of all logs, merged by time.

    Args:
        files: the logs.
        count: how many at most; None: all.
        since_ms: none that are older.
        least: the least severity.
        to_end: also what has no line end yet.
    """

    def is_wanted(line: LogLine) -> bool:
        return line.severity >= least

    each = []
    for file in files:
        lines = file.tail(count, since_ms=since_ms, wanted=is_wanted)
        if to_end:
            lines += filter(is_wanted, file.unfinished())
        each.append(lines)
    merged = list(merge(each))
    return merged if count is None else merged[len(merged) - count :]


def new_lines(
    files: dict[Path, LogFile], look: Callable[[], dict[tuple[str, int], Path]]
) -> Iterator[LogLine]:
    """Yield lines as they come, for ever.

    Args:
        files: the logs that are known, by path.
        look: finds those that there are now, of a newer run as well.
    """
    polls = 0
    while True:
        if polls % _LOOK_EVERY == 0:
            for who, path in look().items():
                files.setdefault(path, LogFile(path, *who))
        polls += 1
        yield from merge([file.new() for file in files.values()])
        time.sleep(POLL_S)


def merge(each: list[list[LogLine]]) -> Iterator[LogLine]:
    """Merge lines of several logs by time; those of one log keep their order."""
    return heapq.merge(*each, key=lambda line: line.time_ms)
