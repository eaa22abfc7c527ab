"""A child process that outlives us if it must, found again by pid and command line."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from infra.errors import ClusterError

_POLL_S = 0.02
# A large process on a busy machine takes its time to go.
_KILL_TIMEOUT_S = 30.0

# Children of this process: kept to be reaped, and so that none is a zombie.
_children: dict[int, subprocess.Popen[bytes]] = {}


@contextlib.contextmanager
def exclusive_lock(path: Path, timeout_s: float) -> Iterator[None]:
    """Holds an advisory lock, which the system frees even after kill -9."""
    deadline = time.monotonic() + timeout_s
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"{path} is locked by another process for over {timeout_s:g} s",
                        "end the other rollstream that is starting or stopping",
                    ) from None
                time.sleep(_POLL_S)
        yield


def spawn(
    argv: Sequence[str], *, log_file: Path, environment: Mapping[str, str]
) -> int:
    """Starts a process in a session of its own, so Ctrl-C never reaches it.

    Its output goes to `log_file`; that of the run before it stays as `.1`.
    """
    if log_file.exists():
        log_file.replace(log_file.with_suffix(log_file.suffix + ".1"))
    with log_file.open("wb") as log, _interrupted_afterwards():
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(environment),
            cwd=log_file.parent,
        )
        _children[child.pid] = child
    return child.pid


def run(
    argv: Sequence[str],
    *,
    tail: Sequence[str],
    log_file: Path,
    environment: Mapping[str, str],
    timeout_s: float,
) -> int | None:
    """Runs a program as `spawn` does, to its end; returns its exit code.

    None: the time was over, and it was killed. Whatever else ends this call, as Ctrl-C
    in the midst of it, the program has gone by then.

    Args:
        argv: the program and its arguments.
        tail: the end of argv, which no other process can have.
        log_file: what it says goes there.
        environment: its variables.
        timeout_s: how long it may take.
    """
    try:
        pid = spawn(argv, log_file=log_file, environment=environment)
        return _children[pid].wait(timeout_s)
    except subprocess.TimeoutExpired:
        kill(pid, tail)
        return None
    except BaseException:
        # By its command line: its start may have been what was interrupted.
        begun = find_process(tail)
        if begun is not None:
            kill(begun, tail)
        raise


@contextlib.contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Holds Ctrl-C and SIGTERM back until it is known which process was started.

    Until it has become another program nobody finds it by its command line.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # no handler runs here
        return
    heard: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: heard.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(signal.getsignal(number))
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for interrupt in heard:
        signal.raise_signal(interrupt)


def command_line(pid: int) -> list[str]:
    """Returns the argv of a live process; empty if it is gone or a zombie."""
    child = _children.get(pid)
    if child is not None:
        if child.poll() is None:
            # The system shows nothing for some milliseconds after it was started.
            assert isinstance(child.args, list)
            return [str(word) for word in child.args]
        del _children[pid]
        return []
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return []
        return process.cmdline()
    except psutil.Error:
        return []


def find_process(tail: Sequence[str]) -> int | None:
    """Returns the pid of the live process whose command line ends with `tail`."""
    for process in psutil.process_iter():
        if command_line(process.pid)[-len(tail) :] == list(tail):
            return process.pid
    return None


def is_ours(pid: int | None, tail: Sequence[str]) -> bool:
    """Says whether `pid` is the process we started, and not a recycled number.

    The tail holds the path of a file in our data directory, so nothing else has it.
    """
    return pid is not None and command_line(pid)[-len(tail) :] == list(tail)


def send_signal(pid: int, tail: Sequence[str], number: signal.Signals) -> bool:
    """Signals the process if it is still ours; returns whether it was."""
    if not is_ours(pid, tail):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    return True


def stop(pid: int | None, tail: Sequence[str], timeout_s: float) -> bool:
    """Ends the process: SIGTERM, and SIGKILL at the deadline.

    Returns whether it ended on SIGTERM (or was gone already).
    """
    if pid is None or not is_ours(pid, tail):
        return True
    if _end(pid, tail, signal.SIGTERM, timeout_s):
        return True
    kill(pid, tail)
    return False


def kill(pid: int, tail: Sequence[str]) -> None:
    """Ends the process with SIGKILL and waits until the system has removed it."""
    if not _end(pid, tail, signal.SIGKILL, _KILL_TIMEOUT_S):
        raise ClusterError(
            f"process {pid} does not end on SIGKILL",
            "it hangs in the kernel, mostly on a disk: check the disk",
        )


def _end(
    pid: int, tail: Sequence[str], number: signal.Signals, timeout_s: float
) -> bool:
    try:
        # It remembers when the process began, so a recycled pid is not taken for it.
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return True
    if not send_signal(pid, tail, number):
        return True
    deadline = time.monotonic() + timeout_s
    # Not `is_ours`: the command line goes before the ports and file locks do.
    while not _is_gone(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _is_gone(process: psutil.Process) -> bool:
    child = _children.get(process.pid)
    if child is not None:
        return child.poll() is not None
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def start_time(pid: int) -> float | None:
    """Returns when a live process began, in seconds since the epoch."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.create_time()
    except psutil.Error:
        return None
