"""A step that hangs -> an exception in it, or the end of the process with a reason."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from types import FrameType

_SIGNAL = signal.SIGUSR2
_NATIVE_PATIENCE = 4
# So many exceptions a call must have been sent in vain: whoever was frozen, by a signal
# or by a busy machine, finds its call long overdue though it hears the first one.
_IN_VAIN = 3
# More than the time between two looks, which put the dump off, and than a busy machine
# keeps a process waiting.
_DUMP_GRACE_S = 30.0


class StepTimeout(BaseException):
    """The watched call takes too long.

    Not an Exception: an environment's own ``except Exception`` must not swallow it.
    """


class Watchdog:
    """Watches calls of the main thread that may never return.

    A call that exceeds its time gets StepTimeout raised in it, which ends a sleep, a
    lock or a loop in Python. A call stuck in native code sees no exception: after
    four times the limit the stacks are printed and the process ends with code 1.
    Watching costs two assignments a call; a thread looks at them now and then.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._since: float | None = None
        self._what = ""
        self._closed = threading.Event()
        self._main = threading.get_ident()
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("expected the main thread: only it receives signals")
        self._before = signal.signal(_SIGNAL, self._on_signal)
        self._put_dump_off()
        self._thread = threading.Thread(target=self._look, name="watchdog", daemon=True)
        self._thread.start()

    def watching(self, what: str) -> Watchdog:
        """Watch the block; raises StepTimeout naming ``what`` when it hangs."""
        self._what = what
        return self

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *raised: object) -> None:
        self._since = None

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        # Else it might put off, that is start, a dump that nobody cancels.
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()
        signal.signal(_SIGNAL, self._before or signal.SIG_DFL)

    def _overdue(self, times: float = 1.0) -> bool:
        since = self._since
        return since is not None and time.monotonic() - since > self._timeout_s * times

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # The call may have returned since the thread looked.
        if self._overdue():
            raise StepTimeout(
                f"{self._what}: expected an answer within {self._timeout_s:g} s, "
                "found none"
            )

    def _put_dump_off(self) -> None:
        """Have the stacks printed, and the process ended, unless called again in time.

        For native code that holds the interpreter's lock: then nothing of ours runs.
        """
        file = sys.__stderr__
        if file is not None and not file.closed:
            delay_s = self._timeout_s * _NATIVE_PATIENCE + _DUMP_GRACE_S
            faulthandler.dump_traceback_later(delay_s, exit=True, file=file)

    def _look(self) -> None:
        file, sent = sys.__stderr__, 0
        while not self._closed.wait(min(self._timeout_s / 4, 5.0)):
            self._put_dump_off()
            if not self._overdue():
                sent = 0
            elif sent >= _IN_VAIN and self._overdue(_NATIVE_PATIENCE):
                print(f"{self._what}: hangs in native code", file=file, flush=True)
                faulthandler.dump_traceback(file=file or 2)
                os._exit(1)
            else:
                signal.pthread_kill(self._main, _SIGNAL)
                sent += 1
