"""A process of a benchmark beside the roles, which says when it is ready."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from infra.control.supervisor import Supervisor
from infra.errors import RollstreamError


@contextmanager
def side_process(
    supervisor: Supervisor, module: str, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """Start ``python -m MODULE ARGUMENTS`` as roles are started; kill it at the end."""
    side = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env=supervisor.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield side
    finally:
        side.kill()
        side.communicate()


def wait_for(side: subprocess.Popen[str], expected: str) -> None:
    """Wait until a process has said something.

    Raises:
        RollstreamError: it says something else, or has ended.
    """
    line = side.stdout.readline() if side.stdout else ""
    if line.strip() != expected:
        raise RollstreamError(f"bench: expected {expected!r}, found {line!r}")
