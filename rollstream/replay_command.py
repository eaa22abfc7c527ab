"""``rollstream replay``: a run's experience, or an archive's, into a new experiment."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated

import typer
from rich.console import Console

from rollstream.errors import BadInput
from rollstream.interrupts import Terminated, leaves_soon
from rollstream.lines import check_experiment
from rollstream.machine import running
from rollstream.options import Json, Overrides
from rollstream.selection_options import (
    Episodes,
    PolicyVersions,
    Since,
    Until,
    Workers,
    parse_selection,
)

EPILOG = (
    "Example: rollstream replay cartpole-dqn --into cartpole-n5 "
    "--set spec.processor.nStep=5 --episodes 'return>=50'"
)

_STOP_S = 8.0
"""Interrupted, an open transaction is ended; what is not, the next to begin ends."""


def replay(
    source: Annotated[
        str, typer.Argument(help="An experiment, or the folder of an archive.")
    ],
    into: Annotated[
        str, typer.Option(help="The experiment, made where it is not there.")
    ],
    since: Since = None,
    until: Until = None,
    policy_version: PolicyVersions = None,
    worker: Workers = None,
    episodes: Episodes = None,
    rate: Annotated[
        str, typer.Option(help="max; N/s: steps a second; 2x: twice as fast as it was.")
    ] = "max",
    resume: Annotated[
        bool, typer.Option("--resume", help="Only if it was begun before.")
    ] = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Replay recorded experience into another experiment, exactly once.

    That has the source's spec without workers, changed by --set; its processors and
    learner do with the steps what its own spec says. Interrupted or killed at any
    moment, the same command goes on; run again when it is done, it adds nothing. Exit
    code: 0 all is in, 1 an error, or nothing is chosen, 2 refused, 130 after Ctrl-C.
    """
    # Here, not above: other commands need none of it.
    from archive.pacing import BadRate, Pace
    from archive.past_source import open_source
    from rollstream.client import Client
    from rollstream.launch_command import warn_without_agents
    from rollstream.replay_display import ReplayDisplay
    from rollstream.replaying import Replayed, Wish, bring_in

    check_experiment(into)
    selection = parse_selection(since, until, policy_version, worker, episodes)
    try:
        pace = Pace.parse(rate)
    except BadRate as exc:
        raise BadInput(exc.problem, exc.mend) from exc
    wish = Wish(into, selection, pace, overrides or (), resume)
    settings = running()
    console = Console(stderr=as_json, highlight=False)
    with leaves_soon(_STOP_S), closing(open_source(settings, source)) as opened:
        done = Replayed(opened.info.identity, into, [])
        try:
            with ReplayDisplay(console) as display:
                bring_in(settings, opened, wish, display, done)
        except (KeyboardInterrupt, Terminated):
            console.print("interrupted; the same command goes on", style="dim")
            if as_json:
                print(json.dumps(done.figures()))
            raise
    if as_json:
        print(json.dumps(done.figures()))
    else:
        console.print(done.in_words(), markup=False, soft_wrap=True)
    with Client(settings) as client:
        warn_without_agents(client)
