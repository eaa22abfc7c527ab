"""What the tests of spawning start: it says what it is, or fails."""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

import numpy as np

IMPORTED_BY = os.getpid()
random.random()
np.random.random()


def facts() -> dict[str, object]:
    """Return what must not depend on how the process was started."""
    tasks = len(list(Path("/proc/self/task").iterdir()))
    handlers = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)
    return {
        "argv": sys.argv[1:],
        "environment": {k: v for k, v in os.environ.items() if k != PARENT},
        "parent_is_told": os.environ[PARENT] == str(os.getppid()),
        "leads_its_session": os.getsid(0) == os.getpid() == os.getpgid(0),
        "files": sorted(map(file_of, os.listdir("/proc/self/fd"))),
        "handlers": [str(signal.getsignal(number)) for number in handlers],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "threads": (tasks, threading.active_count()),
        "main_thread": threading.current_thread() is threading.main_thread(),
        "cwd": os.getcwd(),
        "path": sys.path,
    }


PARENT = "ROLLSTREAM_PARENT_PID"


def file_of(fd: str) -> str:
    try:
        return f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}" if int(fd) < 3 else "other"
    except FileNotFoundError:  # of the directory that was listed
        return "other"


def main(argv: list[str] | None = None) -> None:
    """Do what the first argument says."""
    words = sys.argv[1:] if argv is None else argv
    match words[0]:
        case "facts":
            print(json.dumps(facts()))
        case "random":
            drawn = [random.random(), np.random.random(), os.urandom(8).hex()]
            print(json.dumps([IMPORTED_BY, *drawn]))
        case "exit":
            sys.stdout.flush()
            os._exit(int(words[1]))
        case "raise":
            raise ValueError("on purpose")
        case "crash":
            ctypes.string_at(0)
        case "serve":
            # Here, not above: it is what a role process does.
            from infra.control.role import StopRequest

            stop = StopRequest().listen()
            print(json.dumps(os.getpid()), flush=True)
            stop.wait(60.0)
            print(stop.reason, flush=True)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
