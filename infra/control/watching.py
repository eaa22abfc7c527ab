"""An experiment that others run -> moments, from now until it is over."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

from infra.control.desired import PublishedExperiment, SpecFollower
from infra.control.experiments import in_force
from infra.control.runs import Tick
from infra.control.statuses import StateFollower, summary_of
from infra.errors import RollstreamError
from infra.monitoring.follow import MetricsFollower
from infra.monitoring.summary import Summary
from infra.settings import Settings

_POLL_S = 0.1
_LAST_WORDS_S = 2.0


@dataclass(frozen=True)
class Moment:
    """What is known of an experiment at a time.

    Attributes:
        published: its spec in force; the last one, when it is deleted.
        tick: its metrics.
        state: what was published of it; ``pending`` before anything was, ``deleted``.
        reason: of the state.
        summary: of the run in force: final when it is finished, else of some seconds
            ago; None: there is none yet.
        is_over: nothing comes any more.
    """

    published: PublishedExperiment
    tick: Tick
    state: str
    reason: str
    summary: Summary | None
    is_over: bool


def watch(settings: Settings, name: str) -> Generator[Moment]:
    """Yield several times a second until it is finished, stopped or deleted.

    A run that is replaced by a fresh one is followed into that.

    Raises:
        UnknownExperiment, UnreadableExperiment: there is no such experiment.
        RollstreamError: the brokers do not answer.
    """
    with (
        closing(SpecFollower(settings, only=name)) as specs,
        closing(StateFollower(settings, name)) as states,
        ExitStack() as metrics,
    ):
        specs.read_to_end()
        known = in_force(name, specs.desired.of(name))
        follower: MetricsFollower | None = None
        began_s = time.monotonic()
        while True:
            if follower is None or follower.progress.run_id != known.run_id:
                metrics.close()
                follower = MetricsFollower(settings, name, known.run_id)
                metrics.callback(follower.close)
                follower.read_to_end()
            follower.poll(_POLL_S)
            specs.poll(0.0)
            states.poll()
            entry = specs.desired.of(name)
            known = entry.accepted or known
            is_deleted = entry.accepted is None
            moment = _moment(known, follower, states, began_s, is_deleted)
            if moment.is_over:
                with suppress(RollstreamError):
                    follower.read_to_end(_LAST_WORDS_S)
            yield moment
            if moment.is_over:
                return


def _moment(
    known: PublishedExperiment,
    follower: MetricsFollower,
    states: StateFollower,
    began_s: float,
    is_deleted: bool,
) -> Moment:
    status = states.newest
    state, reason, summary = "pending", "nobody has taken it on yet", None
    if status is not None and status.run_id == known.run_id:
        state, reason, summary = status.state, status.reason, summary_of(status)
    if is_deleted:
        state, reason = "deleted", "its spec was deleted"
    # What it was before it was launched again is no end.
    is_stopped = state == "stopped" and known.experiment.spec.state == "stopped"
    tick = Tick(follower.progress, follower.lag, time.monotonic() - began_s, [])
    is_over = is_deleted or is_stopped or state == "finished"
    return Moment(known, tick, state, reason, summary, is_over)
