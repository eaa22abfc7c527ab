"""An agent's processes, by what they tell -> which of them have to be killed.

In a thread of its own: brokers that are away hold this up, and nothing else.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaException

from infra.control.desired import PublishedExperiment, SpecFollower
from infra.control.health import Condition, History, judge, limits_of
from infra.control.scheduler import Assignment
from infra.errors import RollstreamError
from infra.kafka.reading import read_to_end
from infra.monitoring.follow import READS
from infra.monitoring.signs import Ends, Signs
from infra.settings import Settings
from schemas.experiment import MAX_PARTITIONS, Spec
from schemas.records import MetricsPoint, Position
from schemas.topics import METRICS, topic_name

_PASS_S = 1.0
# A pass that took longer says that we were held up ourselves.
_LONGEST_PASS_S = 3.0
# How long processes have to be heard again, after the brokers were away.
RECOVERY_S = 10.0
_log = logging.getLogger("rollstream.health")

Run = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Process:
    """A role process of this agent."""

    run: Run
    assignment: Assignment
    pid: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A process that has to be killed, and why."""

    process: Process
    condition: Condition


class AnsweredClock:
    """Seconds for which somebody could be heard.

    It stands still while the brokers do not answer and for RECOVERY_S afterwards, and
    while whoever reads it is frozen. Time counts once a later answer has confirmed it.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._hold_s = 0.0

    def pass_(self, seconds: float, answered: bool) -> None:
        """Let time pass."""
        if not answered:
            self._hold_s = RECOVERY_S
            return
        seconds = min(seconds, _LONGEST_PASS_S)
        held_s = min(self._hold_s, seconds)
        self._hold_s -= held_s
        self.now_s += seconds - held_s


@dataclass
class _Followed:
    """One run: its clock, and the processes of it."""

    clock: AnsweredClock = field(default_factory=AnsweredClock)
    histories: dict[Process, History] = field(default_factory=dict)
    # Of each role, the newest incarnation that was heard, and that of those before.
    newest: dict[Assignment, int] = field(default_factory=dict)
    floors: dict[Process, int] = field(default_factory=dict)


class Checkups:
    """Hears of the processes that it is given, and finds those that do not work."""

    def __init__(
        self, settings: Settings, are_taken: Callable[[], bool] = lambda: True
    ) -> None:
        """Start nothing yet.

        Args:
            settings: where the brokers are.
            are_taken: whether the brokers have taken records lately.
        """
        self._settings = settings
        self._are_taken = are_taken
        self._processes: frozenset[Process] = frozenset()
        self._followed: dict[Run, _Followed] = {}
        self._known: Mapping[str, PublishedExperiment] = {}
        self._findings: queue.SimpleQueue[Finding] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._ends: Ends = {}

    def watch(self, processes: frozenset[Process]) -> None:
        """Look after these from now on, and no others."""
        self._processes = processes

    def spec(self, experiment: str) -> Spec | None:
        """Return the spec in force; None: it is not known yet."""
        known = self._known.get(experiment)
        return known.experiment.spec if known else None

    def findings(self) -> list[Finding]:
        """Return what was found since the last time; each process once."""
        found = []
        while not self._findings.empty():
            found.append(self._findings.get())
        return found

    def close(self) -> None:
        """End ``run``."""
        self._closed.set()

    def run(self) -> None:
        """Hear and judge until closed."""
        with (
            closing(SpecFollower(self._settings)) as specs,
            closing(Signs(self._settings)) as signs,
        ):
            passed_s = time.monotonic()
            while not self._closed.wait(_PASS_S):
                specs.poll(0.0)
                self._known = specs.desired.in_force()
                self._follow(signs)
                # In this order: what is heard after the answer is heard now.
                asked_s = time.monotonic()
                answered = self._pass(self._ask(signs), asked_s - passed_s)
                passed_s = asked_s
                for point in signs.hear():
                    self._hear(point)
                for run in answered:
                    self._judge(run, self._followed[run])

    def _follow(self, signs: Signs) -> None:
        processes = self._processes
        for run in self._followed.keys() - {each.run for each in processes}:
            del self._followed[run]
        for process in processes:
            followed = self._followed.setdefault(process.run, _Followed())
            if process not in followed.histories:
                floor = followed.newest.get(process.assignment, -1)
                followed.floors[process] = floor
                followed.histories[process] = History(
                    process.assignment.role, followed.clock.now_s
                )
        for followed in self._followed.values():
            for process in followed.histories.keys() - processes:
                del followed.histories[process], followed.floors[process]
        signs.follow({name for name, _ in self._followed})

    def _hear(self, point: MetricsPoint) -> None:
        followed = self._followed.get((point.experiment, point.run_id))
        if followed is None:
            return
        who = Assignment(point.role, point.index)
        newest = max(followed.newest.get(who, -1), point.incarnation)
        followed.newest[who] = newest
        for process, history in followed.histories.items():
            # What one that was here before has told is still on its way.
            is_own = followed.floors[process] < point.incarnation == newest
            if process.assignment == who and is_own:
                history.hear(_sound(point), followed.clock.now_s)

    def _ask(self, signs: Signs) -> Ends:
        places: set[tuple[str, int]] = set()
        for (name, _), followed in self._followed.items():
            places.add((topic_name(METRICS, name), 0))
            for history in followed.histories.values():
                places |= {(p.topic, p.partition) for p in _positions(history)}
        try:
            return signs.ends(places)
        except (KafkaException, RollstreamError) as exc:
            _log.info("the brokers do not answer: %s", exc)
            return {}

    def _pass(self, ends: Ends, seconds: float) -> list[Run]:
        """Let time pass; return the runs of which somebody could be heard."""
        self._ends = ends
        are_taken, found = self._are_taken(), []
        for run, followed in self._followed.items():
            answered = are_taken and (topic_name(METRICS, run[0]), 0) in self._ends
            followed.clock.pass_(seconds, answered)
            if answered:
                found.append(run)
        return found

    def _judge(self, run: Run, followed: _Followed) -> None:
        known = self._known.get(run[0])
        if known is None or known.run_id != run[1]:
            return
        spec, now_s = known.experiment.spec, followed.clock.now_s
        for process, history in followed.histories.items():
            role = process.assignment.role
            vital = history.look(spec, self._lag(history), now_s)
            condition = judge(vital, limits_of(spec, role), now_s)
            if condition.state == "ok" or not self._is_sure(condition, history):
                continue
            # Another chance, should it live on: the next finding takes as long.
            followed.histories[process] = History(role, now_s)
            self._findings.put(Finding(process, condition))

    def _lag(self, history: History) -> int | None:
        each = [
            self._ends[place.topic, place.partition] - place.position
            for place in _positions(history)
            if (place.topic, place.partition) in self._ends
        ]
        return sum(lag for lag in each if lag > 0) if each else None

    def _is_sure(self, condition: Condition, history: History) -> bool:
        """Look into the log first: offsets of transactions' marks are never read."""
        role = history.role
        newest = history.newest
        if condition.state != "stuck" or role not in READS or newest is None:
            return True
        if newest.values.get("can_learn") or history.hangs:
            return True
        return any(self._holds_record(place) for place in newest.positions)

    def _holds_record(self, place: Position) -> bool:
        try:
            for _ in read_to_end(
                self._settings, place.topic, place.partition, place.position, 5.0
            ):
                return True
        except (RollstreamError, KafkaException):
            return False  # whatever it is, it is not proved
        return False


def _sound(point: MetricsPoint) -> MetricsPoint:
    """Leave only positions that can be: anybody may write to the topic of metrics."""
    topic = READS.get(point.role)
    name = topic_name(topic, point.experiment) if topic else None
    positions = tuple(
        place
        for place in point.positions
        if place.topic == name
        and 0 <= place.partition < MAX_PARTITIONS
        and place.position >= 0
    )
    return replace(point, positions=positions)


def _positions(history: History) -> tuple[Position, ...]:
    newest = history.newest
    return newest.positions if newest else ()
