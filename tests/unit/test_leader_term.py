"""One tick of a leader, with everything around it played: what is written, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infra.control.desired import Desired, Entry, PublishedExperiment
from infra.control.election import Cluster
from infra.control.leader import Term
from infra.control.plans import AgentFacts, Capacity, Plan
from schemas.experiment import from_values
from tests.unit.test_experiment import values

NAME = "cartpole-dqn"


def agent(cpu: float = 4.0) -> AgentFacts:
    return AgentFacts(host="h", pid=1, capacity=Capacity(cpu=cpu))


class Played:
    """A leadership and duties that remember what was asked of them."""

    def __init__(self, **overrides: str) -> None:
        experiment = from_values(values(**overrides))
        self.published = PublishedExperiment(experiment, "r1", 7, "agents")
        self.agents = {"h-1": agent(), "h-2": agent()}
        self.plans: dict[str, Plan | None] = {}
        self.claims: frozenset[str] = frozenset()
        self.is_over = self.may_be_reconnecting = False
        self.not_ready = ""
        self.moves: list[tuple[str, str, str]] = []
        self.writes = 0
        leadership: Any = SimpleNamespace(
            epoch=3, confirm=lambda: None, read=self._read, write=self._write
        )
        duties: Any = SimpleNamespace(
            is_over=lambda published: self.is_over,
            not_ready=lambda published: self.not_ready,
            moved=lambda role, before, now, cluster: self.moves.append(
                (f"{role.role}/{role.index}", before, now)
            ),
            attend=lambda *_: None,
        )
        desired = Desired({NAME: Entry(self.published, 7)})
        specs: Any = SimpleNamespace(desired=desired, poll=lambda timeout_s: None)
        board: Any = SimpleNamespace(poll=lambda: None)
        self.term = Term(leadership, specs, board, duties, None)

    def _read(self) -> Cluster:
        return Cluster(self.agents, dict(self.plans), self.claims)

    def _write(self, plans: dict[str, Plan | None]) -> None:
        self.writes += len(plans)
        for name, plan in plans.items():
            if plan is None:
                self.plans.pop(name)
            else:
                self.plans[name] = plan

    def tick(self) -> dict[str, list[str]]:
        """Return who has what afterwards."""
        self.term._leadership.may_be_reconnecting = self.may_be_reconnecting
        self.term.tick()
        return {
            name: [str(role.assignment.key) for role in plan.roles]
            for name, plan in self.plans.items()
            if plan is not None
        }


@pytest.fixture
def played() -> Played:
    return Played()


def test_what_is_planned_is_not_written_again(played: Played) -> None:
    first = played.tick()
    assert sorted(sum(first.values(), [])) == [
        "evaluator/0", "learner/0", "processor/0", "worker/0", "worker/1",
    ]  # fmt: skip
    writes = played.writes
    assert played.tick() == first and played.writes == writes == 2


def test_roles_of_an_agent_that_is_gone_move_at_once(played: Played) -> None:
    first = played.tick()
    del played.agents["h-2"]
    after = played.tick()
    assert after.keys() == {"h-1"} and len(after["h-1"]) == 5
    assert sorted(played.moves) == [(key, "h-2", "h-1") for key in sorted(first["h-2"])]


def test_who_may_be_reconnecting_keeps_its_roles(played: Played) -> None:
    first = played.tick()
    del played.agents["h-2"]
    played.may_be_reconnecting = True
    assert played.tick() == first and played.moves == []
    played.agents["h-2"] = agent()
    played.may_be_reconnecting = False
    assert played.tick() == first and played.moves == []


def test_an_agent_that_comes_back_too_late_is_told_to_stop_all(played: Played) -> None:
    played.tick()
    del played.agents["h-2"]
    played.tick()
    played.agents["h-2"] = agent()
    assert played.tick()["h-2"] == []


@pytest.mark.parametrize("why", ["claims", "is_over"])
def test_nothing_runs_that_is_finished_or_runs_elsewhere(
    played: Played, why: str
) -> None:
    played.tick()
    setattr(played, why, frozenset({NAME}) if why == "claims" else True)
    assert played.tick() == {"h-1": [], "h-2": []}


def test_while_it_is_not_known_what_to_do_all_stays(played: Played) -> None:
    played.not_ready = "its metrics are being read"
    assert played.tick() == {"h-1": [], "h-2": []}
    played.not_ready = ""
    first = played.tick()
    played.not_ready = "its metrics are being read"
    del played.agents["h-2"]
    assert played.tick() == first


def test_a_spec_that_cannot_be_planned_stays_as_it_is_and_no_other(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = played.tick()

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("infra.control.leader.assignments", fail)
    assert played.tick() == first


def test_a_damaged_plan_is_written_anew(played: Played) -> None:
    first = played.tick()
    played.plans["h-1"] = None
    after = played.tick()
    assert sorted(sum(after.values(), [])) == sorted(sum(first.values(), []))
