"""The way into the command, and out: no traceback of Ctrl-C, no thread waited for."""

from __future__ import annotations

# First of all, and from no file: Ctrl-C in the midst of an import ends in silence.
import _signal  # type: ignore[import-not-found]

_signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

_EXIT_INTERRUPTED = 130
_THREADS_S = 1.0
"""What threads that are left at the end get, all together."""


def main() -> None:
    """Run the command line; exit with the command's code."""
    # Not by an exception: in the midst of an import it may be lost, or be told of.
    signal.signal(signal.SIGINT, _leave)
    from rollstream.cli import main as run_command

    try:
        run_command()
    except SystemExit as end:
        # All is done and said: from here on it would only spoil the exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Python remembers a Ctrl-C that came in the midst of an `exec`, as of an import
        # of dataclasses, until the next one: it would end as if killed by the signal.
        exec("")
        _wait_for_no_thread(end.code)
        raise


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(_EXIT_INTERRUPTED)


def _wait_for_no_thread(code: str | int | None) -> None:
    """End the process where Python would wait for a thread, maybe for ever.

    Ours are daemons, or end; an environment that was tried here may have left its own.
    """
    deadline_s = time.monotonic() + _THREADS_S
    left = [each for each in threading.enumerate() if not each.daemon]
    left.remove(threading.main_thread())
    for each in left:
        each.join(max(0.0, deadline_s - time.monotonic()))
    names = ", ".join(each.name for each in left if each.is_alive())
    if not names:
        return
    with suppress(OSError, ValueError):  # nobody listens any more
        print(f"rollstream: not waited for: thread {names}", file=sys.stderr)
        sys.stderr.flush()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main()
