"""``rollstream doctor``: what is there, what is missing, how to mend it."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from infra.doctor import run_checks
from infra.settings import Settings


def doctor(settings: Settings, *, as_json: bool) -> int:
    """Print every check; return 0 when all are fine, else 1."""
    checks = list(run_checks(settings))
    if as_json:
        print(json.dumps([asdict(check) for check in checks]))
    else:
        table = Table(box=None, header_style="dim", pad_edge=False)
        for column in ("", "CHECK", "FOUND", "EXPECTED", "MEND"):
            table.add_column(column, overflow="fold")
        for check in checks:
            mark = "[green]ok[/]" if check.ok else "[red]no[/]"
            mend = "" if check.ok else check.mend
            table.add_row(mark, check.name, check.found, check.expected, mend)
        Console(highlight=False).print(table)
    return 0 if all(check.ok for check in checks) else 1
