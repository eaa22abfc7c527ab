"""What a leader says of what it did."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infra.control.desired import PublishedExperiment
from infra.control.election import Cluster
from infra.control.leader_duties import Duties
from infra.control.plans import AgentFacts, Capacity, Trouble
from infra.control.wants import Counts, assignments
from infra.settings import Settings
from schemas.experiment import from_values
from tests.unit.test_experiment import values

PUBLISHED = PublishedExperiment(from_values(values()), "r1", 7, "agents")
WORKER = assignments(PUBLISHED, Counts(2, 1))[-2]


class Played(Duties):
    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        notices: Any = SimpleNamespace(event=lambda *event: self.events.append(event))
        leadership: Any = SimpleNamespace(is_sure=True)
        nobody: Any = None
        super().__init__(Settings(), leadership, notices, nobody, nobody, nobody)


def agent(**troubles: Trouble) -> AgentFacts:
    return AgentFacts(host="h", pid=1, capacity=Capacity(cpu=4.0), troubles=troubles)


NAME = PUBLISHED.experiment.name


@pytest.mark.parametrize(
    ("agents", "why"),
    [
        ({}, "which is gone"),
        ({"h-1": agent()}, "where it fits no more"),
        (
            {"h-1": agent(**{NAME: Trouble(reason="full", roles=("worker/0",))})},
            "which cannot start it (full)",
        ),
        (
            {"h-1": agent(**{NAME: Trouble(reason="full", roles=("worker/1",))})},
            "where it fits no more",
        ),
    ],
)
def test_a_move_says_why(agents: dict[str, AgentFacts], why: str) -> None:
    duties = Played()
    duties.moved(WORKER, "h-1", "h-2", Cluster(agents, {}, frozenset()))
    ((*who, kind, reason, severity),) = duties.events
    assert who == [NAME, "r1", "worker", 0] and kind == "moved"
    assert reason == f"from h-1, {why}, to h-2" and severity == "warning"


def test_more_processes_and_those_that_there_is_no_room_for() -> None:
    duties = Played()
    duties.scaled(PUBLISHED, Counts(2, 1), Counts(3, 1), "it waits")
    duties.scaled(PUBLISHED, Counts(3, 1), Counts(4, 1), "it waits, and lacks", False)
    assert [each[2:] for each in duties.events] == [
        ("worker", 2, "scaled", "from 2 to 3: it waits", "info"),
        ("worker", 3, "scaled", "not from 3 to 4: it waits, and lacks", "warning"),
    ]
