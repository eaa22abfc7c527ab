"""What each script does with ``script JOB FOUND``; runs in peers' environments."""

from __future__ import annotations

import importlib.metadata
import json
import multiprocessing
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def do_job(work: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read the job's JSON, and write that of what ``work`` returns: ``found``."""
    found = work(json.loads(Path(sys.argv[1]).read_text()))
    Path(sys.argv[2]).write_text(json.dumps(found))


def found(figures: dict[str, Any], *packages: str) -> dict[str, Any]:
    """Return what a side reads: figures, and the versions of packages."""
    return {"figures": figures, "versions": versions_of(*packages)}


def versions_of(*packages: str) -> dict[str, str]:
    """Return the versions of installed packages."""
    return {name: importlib.metadata.version(name) for name in packages}


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def beside(*roles: Callable[..., None], args: tuple[Any, ...]) -> Iterator[list[int]]:
    """Run each role in a process of its own; yield their pids, kill them at the end."""
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=r, args=args, daemon=True) for r in roles]
    for child in children:
        child.start()
    try:
        yield [child.pid or 0 for child in children]
    finally:
        for child in children:
            child.kill()
            child.join()
