"""Journals beside the product: one file a process, one line a thing that happened.

A process that is killed leaves at most a torn last line, which readers pass over.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DIRECTORY = "CHAOS_JOURNAL"
"""The environment variable that names the directory; without it nothing is hooked."""

MAX_POLL_INTERVAL_MS = "CHAOS_MAX_POLL_INTERVAL_MS"
"""For learners: how long their consumers may go unpolled."""


class Journal:
    """Appends lines that are on the disk when `write` returns."""

    def __init__(self, directory: Path, role: str) -> None:
        self._directory = directory
        name = f"{role}-{time.time_ns():020d}-{os.getpid()}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(directory / name, flags, 0o644)
        self._lock = threading.Lock()
        self.write("start", role=role, pid=os.getpid())

    def write(self, kind: str, durably: bool = True, **values: Any) -> None:
        times = {"at_s": time.time(), "cpu_s": round(time.process_time(), 3)}
        line = json.dumps({"kind": kind, **times, **values}) + "\n"
        with self._lock:
            os.write(self._file, line.encode())
        if durably:
            os.fdatasync(self._file)

    def at(self, point: str) -> None:
        """Do what a test has ordered for this point: die or sleep, once."""
        order = self._directory / f"order-{point}"
        if not order.exists():
            return
        with contextlib.suppress(FileNotFoundError):
            what = order.read_text()
            order.unlink()
            self.write("order", point=point, what=what)
            if what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(float(what))


def open_journal(role: str) -> Journal | None:
    """Return this process's journal; None outside the harness."""
    directory = os.environ.get(DIRECTORY)
    return Journal(Path(directory), f"{role}-{role_index()}") if directory else None


def role_index() -> int:
    """Return the index in a role process's own arguments."""
    return int(sys.argv[sys.argv.index("--index") + 1])


@dataclass
class Life:
    """What one process has written so far.

    Attributes:
        acked: steps of its acknowledged unrolls.
        updates: optimizer steps.
    """

    role: str
    pid: int = 0
    acked: int = 0
    updates: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)

    def take(self, line: dict[str, Any]) -> None:
        """Take in the next line."""
        self.lines.append(line)
        kind = line["kind"]
        if kind == "start":
            self.pid = line["pid"]
        elif kind == "ack" and not line["error"]:
            self.acked += line["valid"]
        elif kind == "update":
            self.updates += 1

    def of(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """Yield its lines of some kinds, in order."""
        return (line for line in self.lines if line["kind"] in kinds)


class Journals:
    """Reads all journals of a directory as they grow."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read_bytes: dict[str, int] = {}
        self._lives: dict[str, Life] = {}
        self._lock = threading.Lock()

    def lives(self, role: str = "") -> list[Life]:
        """Return the lives of a role, oldest first (``worker-0``, ``learner``; all)."""
        with self._lock:
            for path in sorted(self._directory.glob("*.jsonl")):
                self._read(path)
            # The name's second part is the time of the start.
            ordered = sorted(self._lives, key=lambda name: name.rsplit("-", 2)[1])
            found = [self._lives[name] for name in ordered]
        return [life for life in found if life.role.startswith(role)]

    def _read(self, path: Path) -> None:
        role = path.name.rsplit("-", 2)[0]
        life = self._lives.setdefault(path.name, Life(role))
        with path.open("rb") as file:
            file.seek(self._read_bytes.get(path.name, 0))
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._read_bytes[path.name] = self._read_bytes.get(path.name, 0) + whole
        for text in data[:whole].splitlines():
            life.take(json.loads(text))
