"""What an agent tells of processes that ended, and what it does not repeat."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.control.agent_reports import AgentReports
from infra.control.exits import Exit
from infra.control.health import Condition
from infra.control.role import EXIT_REFUSED
from infra.control.scheduler import Assignment

WORKER = Assignment("worker", 3)


def gone(code: int = 1, **more: Any) -> Exit:
    known = {"restarts": 1, "gave_up": False, "last_line": "boom", **more}
    return Exit(WORKER, code, log=Path("w.log"), **known)


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        (gone(), ("failed", "ended with code 1: boom (see w.log)", "warning")),
        (
            gone(restarts=5, gave_up=True),
            ("failed", "given up after 5 failures: ended with code 1: boom (see w.log)",
             "alert"),
        ),
        (
            gone(EXIT_REFUSED, gave_up=True),
            ("failed", "given up, for another start cannot mend it: "
             "ended with code 78: boom (see w.log)", "alert"),
        ),
        (
            gone(-9, killed_as=Condition("stuck", "boom")),
            ("stuck", "killed: boom", "warning"),
        ),
        (
            gone(-9, killed_as=Condition("stuck", "boom"), gave_up=True),
            ("failed", "given up after 1 failures: killed: boom", "alert"),
        ),
        (gone(126, unstarted=1), ("failed", "boom", "warning")),
        (gone(126, unstarted=2), None),
        (gone(126, unstarted=900), None),
        (
            gone(126, unstarted=6, gave_up=True, restarts=6),
            ("failed", "given up after 6 failures: boom", "alert"),
        ),
    ],
)  # fmt: skip
def test_an_end_is_told_of_once(ended: Exit, told: tuple[str, str, str] | None) -> None:
    events: list[tuple[object, ...]] = []
    notices: Any = SimpleNamespace(event=lambda *event: events.append(event[4:]))
    shown: list[object] = []
    AgentReports(notices, shown.append).failed(("e", "r1"), ended)
    assert events == ([told] if told else [])
    assert len(shown) == len(events)
