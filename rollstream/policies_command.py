"""``rollstream policies``: which policy versions there are, and how good they are."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.lines import check_experiment
from rollstream.machine import running
from rollstream.options import Json

if TYPE_CHECKING:
    from infra.policies.topics import PolicyTopics
    from infra.settings import Settings
    from rollstream.policy_rows import Overview

EPILOG = "Example: rollstream policies cartpole-dqn -w"


def policies(
    experiment: Annotated[str, typer.Argument(help="The experiment's name.")],
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C.")
    ] = False,
    count: Annotated[
        int,
        typer.Option("-n", min=0, help="How many, the newest first; 0: all."),
    ] = 20,
    every: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds between looks, with -w.")
    ] = 2.0,
    as_json: Json = False,
) -> None:
    """List the policy versions of an experiment's run that can be had.

    Kept are the newest (current: workers act with it), the best that an evaluator has
    found, each that was the best, and each 25th, unless it was too large for one record
    (8 MB); of those the newest 1 GB. ENV STEPS is how many the learner had told of by
    then. RETURN is of evaluations, of the last day: the mean, the lowest and the
    highest of so many EPISODES, of both rounds where a second one confirmed the first.

    None of the experiment's processes need live. With -w and --json, a line a look.
    Exit code: 0, also when there is none yet; 1 there is no such experiment, or it
    cannot be read; 130 after Ctrl-C.
    """
    check_experiment(experiment)
    settings = running()
    if watch:
        from rollstream.policies_watch import watch_policies

        watch_policies(settings, experiment, count, every, as_json=as_json)
    else:
        with closing(_open(settings, experiment)) as topics:
            found = look(topics)
        show(found, count, as_json=as_json)


def _open(settings: Settings, experiment: str) -> PolicyTopics:
    from infra.policies.topics import PolicyTopics

    return PolicyTopics(settings, experiment, with_metrics=True)


def look(topics: PolicyTopics) -> Overview:
    """Return what there is now."""
    from rollstream.policy_rows import overview

    topics.read()
    return overview(topics, time.time())


def show(found: Overview, count: int, *, as_json: bool) -> None:
    """Print it; as JSON all versions, else the newest ``count`` of them."""
    if as_json:
        print(json.dumps(found.to_json()), flush=True)
        return
    from rollstream.policy_table import notes, print_table

    if found.rows:
        print_table(found, count)
    for note in notes(found, count):
        typer.echo(note, err=True)
