"""Role processes, found as an operator finds them: by what ``ps`` shows."""

from __future__ import annotations

import psutil

from infra.control.scheduler import MODULES


def role_processes(experiment: str) -> dict[str, int]:
    """Return the pids of an experiment's role processes, by ``role/index``."""
    found = {}
    for process in psutil.process_iter(["pid", "cmdline"]):
        words = words_of(process.info["cmdline"])
        if experiment in words and (key := role_of(words)) is not None:
            found[key] = process.info["pid"]
    return found


def words_of(command_line: list[str] | None) -> list[str]:
    """Return the words of a command line, or of a title that was set over it."""
    return " ".join(command_line or []).split()


def role_of(words: list[str]) -> str | None:
    """Return ``role/index``; None of a process that is no role's."""
    if words[:1] == ["rollstream"]:
        return words[1] if "/" in words[1] else None
    # It is still importing, and has not said yet what it is.
    for role, module in MODULES.items():
        if module in words:
            return f"{role}/{words[words.index('--index') + 1]}"
    return None
