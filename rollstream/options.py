"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[
    Path, typer.Argument(help="The experiment, YAML or JSON; - reads stdin.")
]
EnvModule = Annotated[
    list[str] | None,
    typer.Option(help="Import this module of environments; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, only that.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change the spec; repeatable."),
]
