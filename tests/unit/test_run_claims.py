"""A run that may have lost its claim starts nobody: those would fence the other's."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from infra.control import runs
from infra.control.runs import AlreadyRuns, Run
from infra.settings import Settings
from schemas.experiment import from_values, load_values
from tests.unit.test_experiment import SAMPLE


class FakeSupervisor:
    def __init__(self) -> None:
        self.polls = 0

    def poll(self) -> list[Any]:
        self.polls += 1
        return []

    def pids(self) -> dict[Any, int]:
        return {}


@pytest.fixture
def coordination(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    found = SimpleNamespace(lost_claim=threading.Event(), certain=threading.Event())
    monkeypatch.setattr(runs, "Coordination", lambda settings: found)
    monkeypatch.setattr(runs, "make_producer", lambda *_, **__: None)
    return found


@pytest.fixture
def run(coordination: SimpleNamespace) -> Run:
    made = Run(Settings(), from_values(load_values(SAMPLE)))
    made._supervisor = FakeSupervisor()  # type: ignore[assignment]
    made._follower = SimpleNamespace(  # type: ignore[assignment]
        poll=lambda timeout_s: None, progress=None, lag={}
    )
    return made


def test_who_is_certain_restarts_roles(run: Run, coordination: SimpleNamespace) -> None:
    coordination.certain.set()
    next(run.ticks())
    assert run._supervisor.polls == 1


def test_who_is_not_certain_waits(run: Run, coordination: SimpleNamespace) -> None:
    next(run.ticks())
    assert run._supervisor.polls == 0


def test_a_claim_that_is_lost_ends_it_before_anything_is_restarted(
    run: Run, coordination: SimpleNamespace
) -> None:
    coordination.lost_claim.set()
    coordination.certain.set()
    with pytest.raises(AlreadyRuns, match="another process has claimed it"):
        next(run.ticks())
    assert run._supervisor.polls == 0
