"""What an agent is to run and what it runs -> the next steps; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from infra.control.scheduler import STOP_ORDER, Assignment

MayStart = Callable[[Assignment], bool]


@dataclass(frozen=True, slots=True)
class Launch:
    """What a role process is started with.

    Attributes:
        spec_offset: of the spec that it reads.
        digest: of what it reads of it: with another one it is another process.
    """

    spec_offset: int
    digest: str


@dataclass(frozen=True, slots=True)
class Known:
    """A role that was started here, and is not forgotten.

    Attributes:
        launch: what it was started with.
        alive: its process runs; else it failed, and is to be started again.
        gave_up: it is not, as it failed too often.
        stopping: it was asked to stop.
    """

    launch: Launch
    alive: bool = True
    gave_up: bool = False
    stopping: bool = False


@dataclass(frozen=True)
class Steps:
    """What to do now.

    Attributes:
        start: roles that do not run.
        stop: roles to ask to stop.
        forget: roles that do not run, and are not to be started again.
    """

    start: tuple[Assignment, ...]
    stop: tuple[Assignment, ...]
    forget: tuple[Assignment, ...]


@dataclass(frozen=True)
class View:
    """How a role process is.

    Attributes:
        state: running, stopping, backing-off or failed (it is not started again).
        restarts: how often it failed.
        last_line: of its log, when it failed last.
        launch: what it was started with.
        unstarted: how often in a row it could not be started at all.
    """

    state: str
    pid: int
    restarts: int
    last_line: str
    launch: Launch | None
    unstarted: int = 0


@dataclass(frozen=True)
class Changes:
    """What ``reconcile`` did: started, asked to stop, and saw end as it was asked.

    Attributes:
        forgotten: did not run, and are not to be started again.
    """

    started: tuple[Assignment, ...]
    stopping: tuple[Assignment, ...]
    ended: Mapping[Assignment, int]
    forgotten: tuple[Assignment, ...] = ()


def next_steps(
    wanted: Mapping[Assignment, Launch], known: Mapping[Assignment, Known]
) -> Steps:
    """Return the steps that bring what runs nearer to what is wanted.

    1. A process that is not wanted, or wanted with another digest, is asked to stop;
       experience before the learner, as in STOP_ORDER: who uses what others make is
       asked when those have ended.
    2. One that does not run is forgotten for the same reasons. One that failed too
       often is tried again with a newer spec: somebody has changed something.
    3. What is wanted and not known is started.
    """
    unfit = {a for a, each in known.items() if not _fits(wanted.get(a), each)}
    alive = {a for a in unfit if known[a].alive}
    leaving = alive | {a for a, each in known.items() if each.stopping}
    stage = min(map(_stage, leaving), default=0)
    stop = {a for a in alive if not known[a].stopping and _stage(a) == stage}
    return Steps(
        start=_in_order(set(wanted) - set(known)),
        stop=_in_order(stop),
        forget=_in_order({a for a in unfit - alive if not known[a].stopping}),
    )


def _fits(launch: Launch | None, known: Known) -> bool:
    if launch is None or launch.digest != known.launch.digest:
        return False
    return not (known.gave_up and launch.spec_offset > known.launch.spec_offset)


def _stage(assignment: Assignment) -> int:
    return STOP_ORDER.index(assignment.role)


def _in_order(assignments: Collection[Assignment]) -> tuple[Assignment, ...]:
    """Slowest to start first, which is the reverse of the order of stopping."""
    return tuple(sorted(assignments, key=lambda a: (-_stage(a), a)))
