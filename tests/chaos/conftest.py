"""The report of the fault tests: one fixture, one table, one file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos import report
from tests.chaos.report import FaultReport, report_of

# Now: tests run without the variables that a developer has set.
_DIRECTORY = os.environ.get(report.VARIABLE)
_REPORTS: dict[str, FaultReport] = {}


@pytest.fixture
def record_fault() -> Callable[..., FaultReport]:
    """Adds a fault's row: ``record_fault("F01", evidence, ...)``, see `report_of`."""

    def record(*args: object, **more: object) -> FaultReport:
        found = report_of(*args, **more)  # type: ignore[arg-type]
        _REPORTS[found.fault] = found
        return found

    return record


def pytest_sessionfinish() -> None:
    if _DIRECTORY and _REPORTS:
        report.write(_REPORTS.values(), Path(_DIRECTORY))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _REPORTS:
        terminalreporter.write_line("")
        report.show(_REPORTS.values(), Console(width=120))
