"""``rollstream doctor``: what is there, what is missing, how to mend it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.doctor import run_checks
from infra.settings import Settings
from rollstream.printable import printable

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
        # A pipe has no width: nothing may be folded there.
        width = None if sys.stdout.isatty() else PIPE_WIDTH
        Console(highlight=False, width=width).print(table)
    return 0 if all(check.ok for check in checks) else 1
