"""``rollstream doctor``: what is there, what is missing, how to mend it."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from infra.doctor import run_checks
from infra.printable import printable
from infra.settings import Settings
from rollstream.tables import table_console

PIPE_WIDTH = 200


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
            texts = (check.name, check.found, check.expected, mend)
            table.add_row(mark, *(Text(printable(text)) for text in texts))
        table_console(PIPE_WIDTH).print(table)
    return 0 if all(check.ok for check in checks) else 1
