"""``rollstream agent``: run this host's share of what was launched."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.options import EnvModule

if TYPE_CHECKING:
    from infra.control.agent_reports import Happening
    from infra.control.plans import Capacity
    from infra.settings import Settings

EPILOG = "Example: rollstream agent --capacity cpu=2,gpu=0 --label zone=a"
_log = logging.getLogger("rollstream.agent")


def agent(
    capacity: Annotated[
        str | None,
        typer.Option(
            metavar="cpu=N,gpu=N",
            help="What specs may reserve; as it is not said: all cores, all GPUs.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="What specs may select; repeatable."),
    ] = None,
    env_module: EnvModule = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve Prometheus metrics there, as `rollstream exporter` does.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines on stdout, only that.")
    ] = False,
) -> None:
    """Run this host's share of all launched experiments, until Ctrl-C or SIGTERM.

    Several agents share the work, also on one machine; one of them leads, and another
    one when that is gone. Stopped, an agent stops its processes in order, and others
    take them over. Exit code: 130 after Ctrl-C, 143 after SIGTERM, 1 on errors, 2 when
    an option is refused.
    """
    from infra.control.agent import Agent
    from infra.logs import configure_logging
    from rollstream.listening import parse_listen
    from rollstream.machine import running, with_modules

    has, labels = parse_capacity(capacity), parse_labels(label or [])
    where = parse_listen(metrics, "--metrics") if metrics else None
    settings = with_modules(running(), env_module)
    configure_logging(None, "agent", os.getpid())
    show = _print_json if as_json else _line_printer()
    with _metrics(settings, where) as served:
        found = Agent(settings, has, labels, show)
        try:
            found.start()
            _announce(found.name, has, labels, served, as_json=as_json)
            found.run()
        finally:
            found.close()


@contextmanager
def _metrics(settings: Settings, where: tuple[str, int] | None) -> Iterator[str]:
    """Serve metrics, where that is asked for; yields where they are."""
    if where is None:
        yield ""
        return
    from infra.monitoring.metrics_server import serving_metrics

    with serving_metrics(settings, *where) as url:
        yield url


def parse_capacity(text: str | None) -> Capacity:
    """Return the capacity that ``cpu=2,gpu=0`` names; what is not named is all."""
    from infra.control.plans import Capacity

    amounts = {"cpu": float(os.cpu_count() or 1), "gpu": float(count_gpus())}
    for part in text.split(",") if text else ():
        name, _, value = part.partition("=")
        name = name.strip()
        try:
            amount = float(value)
        except ValueError:
            amount = -1.0
        if name not in amounts or not 0 <= amount <= 1e6:
            raise typer.BadParameter(
                f"--capacity: expected cpu=N,gpu=N with numbers, found {part!r}"
            )
        amounts[name] = amount
    return Capacity(**amounts)


def parse_labels(texts: Sequence[str]) -> dict[str, str]:
    """Return the labels that ``zone=a`` and the like name."""
    found = {}
    for text in texts:
        name, is_pair, value = text.partition("=")
        if not (is_pair and name and value) or max(len(name), len(value)) > 63:
            raise typer.BadParameter(
                f"--label: expected NAME=VALUE of at most 63 characters each, found "
                f"{text[:80]!r}"
            )
        found[name] = value
    return found


def count_gpus() -> int:
    """Return how many GPUs the system shows."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def _announce(
    name: str, has: Capacity, labels: dict[str, str], metrics: str, *, as_json: bool
) -> None:
    if as_json:
        facts = {"kind": "agent", "name": name, "labels": labels, **has.model_dump()}
        _tell(json.dumps(facts | ({"metrics": metrics} if metrics else {})))
        return
    shown = "".join(f", {key}={value}" for key, value in sorted(labels.items()))
    where = f"; metrics at {metrics}" if metrics else ""
    _tell(f"agent {name}: cpu {has.cpu:g}, gpu {has.gpu:g}{shown}{where}")


def _tell(line: str) -> None:
    """Print a line; an agent that cannot be heard goes on with its work."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except OSError as exc:  # of a full disk, for one: the next line may have room
        _log.warning("stdout takes nothing: %s", exc)


def _print_json(happening: Happening) -> None:
    _tell(json.dumps(asdict(happening)))


def _line_printer() -> Callable[[Happening], None]:
    from rich.console import Console
    from rich.markup import escape

    from infra.printable import printable

    line = io.StringIO()
    console = Console(
        file=line,
        force_terminal=Console().is_terminal,
        highlight=False,
        soft_wrap=True,
    )
    styles = {"failed": "red", "restarted": "yellow", "started": "green"}

    def show(happening: Happening) -> None:
        role = f"{happening.experiment} {happening.role}/{happening.index}"
        pid = f" (pid {happening.pid})" if happening.pid else ""
        line.seek(0)
        line.truncate()
        console.print(
            f"{role} [{styles.get(happening.kind, 'dim')}]{happening.kind}[/]"
            f"{pid}: {escape(printable(happening.reason))}",
            end="",
        )
        _tell(line.getvalue())

    return show
