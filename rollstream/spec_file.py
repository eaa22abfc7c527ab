"""The file of an experiment, or stdin -> the experiment."""

from __future__ import annotations

import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollstream.overrides import apply_overrides
from schemas.experiment import Experiment, SpecError, from_values, load_values
from schemas.plain_values import MAX_TEXT, show
from schemas.spec_text import load_yaml

_STDIN = Path("-")


def load_file(path: Path, overrides: Sequence[str] | None) -> Experiment:
    """Return the experiment in a file, with some values set; ``-`` is stdin.

    Raises:
        SpecError: it is refused, or cannot be read.
    """
    return from_values(apply_overrides(read_values(path), overrides or ()))


def read_values(path: Path) -> dict[str, Any]:
    """Return what a YAML or JSON file holds, or for ``-`` stdin.

    Raises:
        SpecError: it is no file, cannot be read, or is no mapping.
    """
    if path == _STDIN:
        return _read_stdin()
    try:
        mode = path.stat().st_mode
    except OSError:
        return load_values(path)  # says what is wrong with it
    if not stat.S_ISREG(mode):
        # A pipe would be waited for, and a device may have no end.
        found = "a directory" if stat.S_ISDIR(mode) else "a pipe, socket or device"
        raise SpecError([f"{path}: expected a regular file or -, found {found}"])
    return load_values(path)


def _read_stdin() -> dict[str, Any]:
    data = sys.stdin.buffer.read(MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise SpecError([f"stdin: expected at most {MAX_TEXT:,} bytes, found more"])
    try:
        # Of which JSON is a part.
        values = load_yaml(data.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        raise SpecError([f"stdin: expected UTF-8, found {exc.reason}"]) from exc
    except SpecError as exc:
        raise SpecError([f"stdin: {problem}" for problem in exc.problems]) from exc
    if not isinstance(values, dict):
        raise SpecError([f"stdin: expected a mapping, found {show(values)}"])
    return values
