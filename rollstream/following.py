"""An experiment that the agents run, shown as `rollstream run` shows its own."""

from __future__ import annotations

from contextlib import closing

from rich.console import Console

from infra.control.experiments import run_directory
from infra.control.watching import Moment
from infra.printable import printable
from rollstream.client import Client
from rollstream.display import Display, LiveDisplay, PlainDisplay
from rollstream.interrupts import Terminated
from rollstream.run_command import EXIT_TARGET_MISSED, exit_code, show_summary

EXIT_DELETED = 1


def follow(client: Client, name: str, console: Console) -> tuple[Moment, int]:
    """Show an experiment until it is over; return its last moment and an exit code.

    Ctrl-C ends this, and nothing else; the exception goes on.
    """
    display: Display = (
        LiveDisplay(console, name) if console.is_terminal else PlainDisplay(console)
    )
    told = ("", "")
    try:
        with display, closing(client.watch(name)) as moments:
            for moment in moments:
                if (moment.state, moment.reason) != told:
                    told = moment.state, moment.reason
                    say(console, f"{moment.state}: {moment.reason}")
                display.show(moment.tick)
    except (KeyboardInterrupt, Terminated):
        say(
            console,
            f"no longer followed; {name} goes on: `rollstream launch FILE --follow` "
            f"shows it again, `rollstream stop {name}` stops it",
        )
        raise
    return moment, _end(client, moment, console)


def _end(client: Client, moment: Moment, console: Console) -> int:
    if moment.summary is None:
        return EXIT_DELETED if moment.state == "deleted" else EXIT_TARGET_MISSED
    published = moment.published
    directory = run_directory(
        client.settings, published.experiment.name, published.run_id
    )
    show_summary(console, moment.summary, directory)
    return exit_code(moment.summary)


def say(console: Console, line: str) -> None:
    """Print a line that may hold anything, whole."""
    console.print(printable(line), style="dim", markup=False, soft_wrap=True)
