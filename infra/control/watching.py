"""An experiment that others run -> moments, from now until it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace

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
_LOOK_S = 1.0
_LOOK_AGAIN_S = 10.0
"""After ZooKeeper did not answer, for which we may have waited."""

# Longer than a claim takes to be put back, and than the time between two beats.
_SILENT_S = 20.0
_ENDED = ("stopped", "failed")

IsClaimed = Callable[[], bool | None]


@dataclass(frozen=True)
class Moment:
    """What is known of an experiment at a time.

    Attributes:
        published: its spec in force; the last one, when it is deleted.
        tick: its metrics.
        state: what was published of it; ``pending`` before anything was; ``deleted``;
            ``failed`` also when a foreground run was killed, which publishes nothing.
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


class Foreground:
    """Says when a `rollstream run` is over, which may begin again under the same id."""

    def __init__(self, is_claimed: IsClaimed) -> None:
        """Begin to look.

        Args:
            is_claimed: whether somebody runs it now; None: not known.
        """
        self._is_claimed = is_claimed
        self._claimed: bool | None = None
        self._look_at_s = 0.0
        self._heard: Mapping[tuple[str, int], int] = {}
        self._alive_at_s = time.monotonic()

    def has_ended(self, state: str) -> bool:
        """Whether nobody runs it, and it has said that it ended."""
        self._look()
        return self._claimed is False and state in _ENDED

    def is_lost(self, heard_at_ms: Mapping[tuple[str, int], int]) -> bool:
        """Whether nobody runs it, and for a while none of its roles was heard.

        A claim alone is also gone while its ZooKeeper session is.
        """
        self._look()
        if self._claimed is not False or heard_at_ms != self._heard:
            self._heard = dict(heard_at_ms)
            self._alive_at_s = time.monotonic()
        return time.monotonic() - self._alive_at_s > _SILENT_S

    def _look(self) -> None:
        if time.monotonic() >= self._look_at_s:
            self._claimed = self._is_claimed()
            wait_s = _LOOK_AGAIN_S if self._claimed is None else _LOOK_S
            self._look_at_s = time.monotonic() + wait_s


def watch(
    settings: Settings, name: str, is_claimed: IsClaimed = lambda: None
) -> Generator[Moment]:
    """Yield several times a second until it is finished, stopped or deleted.

    A run that is replaced by a fresh one is followed into that.

    Args:
        settings: where it is.
        name: the experiment's.
        is_claimed: whether a foreground run has it; None: not known. What nobody runs
            any more is over, too, when it is of a foreground run.

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
        began_s, foreground = time.monotonic(), Foreground(is_claimed)
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
            if known.managed_by == "run" and not moment.is_over:
                moment = _of_foreground(moment, foreground, follower)
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


def _of_foreground(
    moment: Moment, foreground: Foreground, follower: MetricsFollower
) -> Moment:
    if foreground.has_ended(moment.state):
        return replace(moment, is_over=True)
    if foreground.is_lost(follower.heard_at_ms):
        reason = "its `rollstream run` ended without a word"
        return replace(moment, state="failed", reason=reason, is_over=True)
    return moment
