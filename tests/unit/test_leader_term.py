"""One tick of a leader, with everything around it played: what is written, and when."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from infra.control.desired import Desired, Entry, PublishedExperiment
from infra.control.election import Cluster
from infra.control.placement import Free, Placement
from infra.control.plans import AgentFacts, Capacity, Plan, Trouble
from infra.control.term import Term
from infra.control.wants import Counts
from schemas.experiment import from_values
from tests.unit.test_experiment import values

NAME = "cartpole-dqn"


def agent(cpu: float = 4.0, **more: Any) -> AgentFacts:
    return AgentFacts(host="h", pid=1, capacity=Capacity(cpu=cpu), **more)


class PlayedScaler:
    """Wants so many workers, again and again."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.asked: list[Counts] = []
        self.refused: list[dict[str, Free]] = []

    def observe(self, *_: object) -> None:
        pass

    def decide(
        self, published: object, now: Counts, free: object
    ) -> tuple[Counts, str] | None:
        self.asked.append(now)
        more = replace(now, workers=self.workers)
        return None if more == now else (more, "it waits")

    def no_room(self, published: object, free: dict[str, Free]) -> bool:
        self.refused.append(free)
        return len(self.refused) == 1


class Played:
    """A leadership and duties that remember what was asked of them."""

    def __init__(self, scaler: Any = None, **overrides: str) -> None:
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
            scaled=lambda *told: self.told.append(told[1:]),
            attend=self._attend,
        )
        self.told: list[tuple[Any, ...]] = []
        self.desired = Desired({NAME: Entry(self.published, 7)})
        specs: Any = SimpleNamespace(desired=self.desired, poll=lambda timeout_s: None)
        board: Any = SimpleNamespace(poll=lambda: None)
        self.term = Term(leadership, specs, board, duties, scaler)

    def _read(self) -> Cluster:
        return Cluster(self.agents, dict(self.plans), self.claims)

    def _attend(
        self, desired: Desired, cluster: Cluster, waits_for: Any, placement: Placement
    ) -> None:
        self.waits_for, self.placement = waits_for, placement

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
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = played.tick()
    bugs = iter(["a bug", "a bug", "a bug", "another", "another", "another"])

    def fail(*_: object) -> None:
        raise RuntimeError(next(bugs))

    monkeypatch.setattr("infra.control.term.assignments", fail)
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            assert played.tick() == first
            assert "it cannot be planned: RuntimeError" in played.waits_for[NAME]
        assert len(caplog.records) == 2, "of each reason once"
        newer = replace(played.published, offset=9)
        played.desired.entries[NAME] = Entry(newer, 9)
        played.tick()
    assert len(caplog.records) == 3, "and of each spec"


def test_what_takes_room_and_cannot_be_planned_keeps_it(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.tick()
    taken = played.placement.free
    monkeypatch.setattr("infra.control.term.assignments", lambda *_: 1 / 0)
    played.tick()
    assert played.placement.free == taken


def test_a_role_that_cannot_be_started_moves_and_stays_there(played: Played) -> None:
    first = played.tick()
    role = first["h-1"][0]
    trouble = Trouble(reason="full", roles=(role,))
    played.agents["h-1"] = agent(troubles={NAME: trouble})
    after = played.tick()
    assert played.moves == [(role, "h-1", "h-2")]
    assert after["h-2"] == sorted([*first["h-2"], role])
    # A new leader knows no more than what the plans and agents say.
    played.agents["h-1"] = agent(troubles={NAME: Trouble(reason="full")})
    played.term._free = {}
    for _ in range(3):
        assert played.tick() == after
    played.agents["h-1"] = agent()
    assert played.tick() == after and len(played.moves) == 1


def test_more_processes_are_told_of_as_many_as_found_a_place() -> None:
    scaler = PlayedScaler(workers=4)
    played = Played(scaler, spec__workers="{replicas: 2, min: 1, max: 8}")
    played.agents = {"h-1": agent(1.5)}  # six roles; five run
    played.tick()
    assert played.told == [(Counts(2, 1), Counts(3, 1), "it waits")]
    assert played.placement.pending == {}, "nobody waits for the fourth"
    assert scaler.refused == [{"h-1": Free(0, 0, 506)}]


def test_more_processes_that_fit_nowhere_are_told_of_once() -> None:
    scaler = PlayedScaler(workers=4)
    played = Played(scaler, spec__workers="{replicas: 2, min: 1, max: 8}")
    played.agents = {"h-1": agent(1.25)}
    first = played.tick()
    for _ in range(5):
        assert played.tick() == first and played.placement.pending == {}
    why = "it waits, and no agent fits: h-1 lacks cpu 0.25 (free 0)"
    assert played.told == [(Counts(2, 1), Counts(4, 1), why, False)]
    assert set(scaler.asked) == {Counts(2, 1)} and len(scaler.refused) == 6
    scaler.workers = 1
    played.tick()
    assert played.told[1:] == [(Counts(2, 1), Counts(1, 1), "it waits")]


def test_a_damaged_plan_is_written_anew(played: Played) -> None:
    first = played.tick()
    played.plans["h-1"] = None
    after = played.tick()
    assert sorted(sum(after.values(), [])) == sorted(sum(first.values(), []))
