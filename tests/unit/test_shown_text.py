"""What others have written is shown, and not obeyed; what is no name is refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner

from infra.control.coordination import Coordination
from infra.control.deletion import delete_experiment
from infra.control.experiments import UnknownExperiment
from infra.errors import RollstreamError
from infra.monitoring.overview import ExperimentRow, Overview
from infra.monitoring.progress import Progress
from infra.monitoring.summary import summarise
from infra.settings import Settings
from rollstream.cli import app
from rollstream.errors import exits_with_a_message
from rollstream.ps_command import _show
from rollstream.run_command import show_summary

EVIL = "\x1b]0;owned\x07"


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, exits_with_a_message():
        raise RollstreamError(f"found {EVIL}\nand more", "mend it")
    assert ended.value.code == 1
    shown = capsys.readouterr().err
    assert "\x1b" not in shown and shown.count("\n") == 2 and "owned" in shown


def test_a_summary() -> None:
    text = io.StringIO()
    summary = summarise(
        "e", Progress("r1"), None, state="stopped", reason=EVIL, wall_s=1.0,
        env_steps_before=0,
    )  # fmt: skip
    show_summary(Console(file=text), summary, Path("/nowhere"))
    assert "\x1b" not in text.getvalue() and "owned" in text.getvalue()


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    row = ExperimentRow(
        "e", "r1", "agents", "running", "running", "", 1, 1, 5, 1.0, True, 9, (EVIL,)
    )
    _show(Overview((row,), (EVIL,)))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "owned" in shown


def test_a_table_of_long_reasons_keeps_its_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "worker/0: no agent fits: " + "vm-1 lacks cpu 0.25 (free 0); " * 9 + "end"
    agents = tuple(f"vm-{n}" for n in range(9))
    rows = [
        ExperimentRow(
            f"sweep-{n}" * 5, "r", "agents", "running", "pending", reason, 0, 4, 12_345,
            -1.5, True, 9, agents,
        )
        for n in range(2)
    ]  # fmt: skip
    _show(Overview(tuple(rows), agents))
    header, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.split()[1:8] == [
            "pending",
            "0/4",
            "12,345",
            "-1.5",
            "0",
            "s",
            "vm-0,",
        ]
        assert (
            line.endswith("vm-0, vm-1 and 7 more  " + reason) and "running" not in line
        )
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    _show(Overview(tuple(rows), agents))
    header, *lines = capsys.readouterr().out.splitlines()
    assert [len(line) for line in lines] == [200, 200] and "\x1b" in header
    monkeypatch.setenv("COLUMNS", "40")
    _show(Overview(tuple(rows), agents))
    header, *lines = capsys.readouterr().out.splitlines()
    assert all("  worker/0: no agent fits…" in line for line in lines)


@pytest.mark.parametrize("command", ["get", "pause", "resume", "stop", "delete"])
@pytest.mark.parametrize("name", ["", "A B", "../x", "a/b", EVIL])
def test_what_is_no_name_is_refused(command: str, name: str) -> None:
    found = CliRunner().invoke(app, [command, "--", name])
    assert found.exit_code == 2 and "\x1b" not in found.output


def test_what_is_no_name_cannot_be_deleted() -> None:
    nothing_is_asked = cast(Coordination, cast(Any, None))
    with pytest.raises(UnknownExperiment):
        delete_experiment(Settings(), nothing_is_asked, "A B")
