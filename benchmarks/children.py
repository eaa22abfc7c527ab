"""A long command as a child process: its last line is shown, and it is ended whole."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from infra.errors import RollstreamError

POLL_S = 0.2
SHOW_S = 10.0
LEAVE_S = 30.0
_TAIL_BYTES = 2_000


class ChildFailed(RollstreamError):
    """A command that was needed has failed."""


def run_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    show: Callable[[str], None],
    accept: Sequence[int] = (0,),
) -> str:
    """Run a command to its end and return what it printed.

    Interrupted, it is asked to leave as by Ctrl-C; what is still there after that, it
    and its children, is killed, each by its pid.

    Args:
        command: and its arguments.
        environment: of it.
        log: where its stderr goes.
        show: is given its newest line every ten seconds.
        accept: exit codes that are no failure.

    Raises:
        ChildFailed: another exit code, with its last line.
    """
    output = log.with_suffix(".out")
    with log.open("w") as stderr, output.open("w") as stdout:
        child = subprocess.Popen(
            command, env=dict(environment), stdout=stdout, stderr=stderr,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            _follow(child, log, show)
        except BaseException:
            end(child)
            raise
    if child.returncode not in accept:
        raise ChildFailed(
            f"{' '.join(command[:4])} ...: expected an exit code of {list(accept)}, "
            f"found {child.returncode}: {last_line(log)}",
            f"read {log}",
        )
    return output.read_text()


def output_of(command: Sequence[str], failure: Callable[[str], RollstreamError]) -> str:
    """Run a short command to its end and return what it printed.

    Raises:
        RollstreamError: what ``failure`` makes of its exit code and last words.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        words = said[-1] if said else "nothing said"
        raise failure(f"exit code {done.returncode}: {words}")
    return done.stdout


def _follow(
    child: subprocess.Popen[bytes], log: Path, show: Callable[[str], None]
) -> None:
    shown_s = time.monotonic()
    while child.poll() is None:
        time.sleep(POLL_S)
        if time.monotonic() - shown_s >= SHOW_S:
            shown_s = time.monotonic()
            if line := last_line(log):
                show(line)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a child and all that it has started."""
    family = _family(child)
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        child.wait(LEAVE_S)
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    child.wait()


def _family(child: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        process = psutil.Process(child.pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def last_line(log: Path) -> str:
    """Return the last line of a file that is being written; "" where there is none."""
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
