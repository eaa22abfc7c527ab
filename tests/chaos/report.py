"""Fault tests -> one table and ``chaos.json``."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chaos.checks import check_all
from tests.chaos.evidence import Evidence, follow_training
from tests.chaos.recovery import HARMLESS, Rate, recoveries_s

VARIABLE = "ROLLSTREAM_CHAOS_REPORT"
"""The directory that chaos.json goes to; without it nothing is written."""


@dataclass(frozen=True)
class FaultReport:
    """One row.

    Attributes:
        fault: its id, F01 to F30.
        injected: how often.
        lost: steps acknowledged that the learner never had.
        duplicated: steps that came again, and were cut off.
        recovery_s: the longest time from a fault to new useful output of what it hit.
        recovery_median_s: of all of them.
        rate_back_s: from the last fault until 90 % of the rate before the first one.
        findings: of the checker; 0 when all is well.
    """

    fault: str
    what: str
    injected: int
    steps_acknowledged: int
    lost: int
    duplicated: int
    recovery_s: float | None
    recovery_median_s: float | None
    rate_back_s: float | None
    findings: int = 0
    note: str = ""


def report_of(
    fault: str,
    evidence: Evidence,
    *,
    what: str = "",
    injected: int | None = None,
    recovery_s: float | None = None,
    findings: int | None = None,
    note: str = "",
) -> FaultReport:
    """Return a row; what is not given is worked out of the evidence."""
    if findings is None:
        findings = len(check_all(evidence))
    noted = evidence.injected
    harm = [each for each in noted if each.what not in HARMLESS] or noted
    recoveries = recoveries_s(evidence)
    note = note or ", ".join(f"{f.what} {f.role}: {s:.1f} s" for f, s in recoveries)
    found = [s for _, s in recoveries] if recovery_s is None else [recovery_s]
    acknowledged = evidence.steps_acknowledged
    return FaultReport(
        fault,
        what or ", ".join(sorted({f"{i.what} {i.role}" for i in harm})),
        len(harm) if injected is None else injected,
        acknowledged,
        max(0, acknowledged - follow_training(evidence.lives).steps),
        evidence.steps_repeated,
        round(max(found), 2) if found else None,
        round(statistics.median(found), 2) if found else None,
        Rate(evidence.acks, evidence.injected).back_s(),
        findings,
        note,
    )


def write(reports: Iterable[FaultReport], directory: Path) -> Path:
    """Merge rows into chaos.json; a fault's new row replaces its old one."""
    path = directory / "chaos.json"
    directory.mkdir(parents=True, exist_ok=True)
    rows = json.loads(path.read_text())["faults"] if path.exists() else []
    merged = {row["fault"]: row for row in rows}
    merged |= {report.fault: asdict(report) for report in reports}
    text = json.dumps({"faults": [merged[key] for key in sorted(merged)]}, indent=1)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text + "\n")
    os.replace(unfinished, path)
    return path


def show(reports: Iterable[FaultReport], console: Console) -> None:
    """Print all rows as one table."""
    table = Table(title="faults", title_justify="left")
    table.add_column("fault")
    table.add_column("what", max_width=34)
    for name in (
        "injected", "steps acked", "lost", "duplicated", "recovery s", "median s",
        "90 % after s", "findings",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for r in sorted(reports, key=lambda report: report.fault):
        table.add_row(
            r.fault, r.what, *(
                "-" if value is None else f"{value:,}"
                for value in (
                    r.injected, r.steps_acknowledged, r.lost, r.duplicated,
                    r.recovery_s, r.recovery_median_s, r.rate_back_s, r.findings,
                )
            ),
        )  # fmt: skip
    console.print(table)
