"""``rollstream policies -w``: looks, one after the other, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from infra.control.experiments import read_experiment
from infra.errors import KafkaUnavailable
from infra.policies.topics import PolicyTopics
from infra.printable import printable
from rollstream.policies_command import look, show
from rollstream.policy_table import make_table, notes

if TYPE_CHECKING:
    from infra.settings import Settings
    from rollstream.policy_rows import Overview

# The header, the line above, and room for what has to be said.
_OTHER_LINES = 5


def watch_policies(
    settings: Settings, experiment: str, count: int, every_s: float, *, as_json: bool
) -> None:
    """Show each look; returns only by an exception, as of Ctrl-C."""
    looks = _looks(settings, experiment, every_s)
    console = Console(highlight=False)
    if as_json or not sys.stdout.isatty():
        for found in looks:
            show(found, count, as_json=as_json)
            if not as_json:
                print(flush=True)
        return
    with Live(console=console, auto_refresh=False) as live:
        for found in looks:
            room = max(console.height - _OTHER_LINES, 1)
            live.update(_screen(found, min(count or room, room), console), refresh=True)


def _screen(found: Overview, count: int, console: Console) -> Group:
    title = Text(f"{found.experiment} run {printable(found.run_id)}", "dim")
    words = "\n".join(notes(found, count))
    return Group(title, make_table(found, count, console), Text(words, "dim"))


def _looks(settings: Settings, experiment: str, every_s: float) -> Iterator[Overview]:
    """Yield what there is, of another run as soon as there is one."""
    while True:
        with closing(PolicyTopics(settings, experiment, with_metrics=True)) as topics:
            run_id = topics.published.run_id
            while run_id == topics.published.run_id:
                try:
                    yield look(topics)
                    time.sleep(every_s)
                    run_id = read_experiment(settings, experiment).run_id
                except KafkaUnavailable as exc:
                    # They come back; what is shown is as old as it says.
                    typer.echo(f"rollstream: {printable(str(exc))}", err=True)
