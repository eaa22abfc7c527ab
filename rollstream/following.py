"""An experiment that the agents run, shown as `rollstream run` shows its own."""

from __future__ import annotations

from contextlib import closing

from rich.console import Console

from infra.control.experiments import run_directory
from infra.control.watching import Moment
from infra.monitoring.live import ask_zookeeper, live_agents
from infra.printable import printable
from rollstream.client import Client
from rollstream.display import Display, LiveDisplay, PlainDisplay
from rollstream.hints import NO_AGENT
from rollstream.interrupts import Terminated
from rollstream.run_command import EXIT_TARGET_MISSED, exit_code, show_summary

EXIT_DELETED = 1
AGENTS_INTERVAL_S = 5.0


def follow(client: Client, name: str, console: Console) -> tuple[Moment, int]:
    """Show an experiment until it is over; return its last moment and an exit code.

    Ctrl-C ends this, and nothing else; the exception goes on.
    """
    display: Display = (
        LiveDisplay(console, name) if console.is_terminal else PlainDisplay(console)
    )
    teller = _Teller(client, console)
    try:
        with display, closing(client.watch(name)) as moments:
            for moment in moments:
                teller.tell(moment)
                display.show(moment.tick)
    except (KeyboardInterrupt, Terminated):
        say(
            console,
            f"no longer followed; {name} goes on: `rollstream launch FILE --follow` "
            f"shows it again, `rollstream stop {name}` stops it",
        )
        raise
    return moment, _end(client, moment, console)


class _Teller:
    """Says what becomes of an experiment, each thing once."""

    def __init__(self, client: Client, console: Console) -> None:
        self._client, self._console = client, console
        self._told = ("", "")
        self._had_agents = True
        self._look_at_s = 0.0

    def tell(self, moment: Moment) -> None:
        """Say what is new: the state, or that nobody is there to change it."""
        if (moment.state, moment.reason) != self._told:
            self._told = moment.state, moment.reason
            say(self._console, f"{moment.state}: {moment.reason}")
        is_waiting = moment.state == "pending" or self._look_at_s == 0.0
        if moment.is_over or not is_waiting or moment.tick.wall_s < self._look_at_s:
            return
        self._look_at_s = moment.tick.wall_s + AGENTS_INTERVAL_S
        agents = ask_zookeeper(self._client.settings, live_agents)
        if agents == () and self._had_agents:
            say(self._console, NO_AGENT)
        self._had_agents = agents != ()


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
