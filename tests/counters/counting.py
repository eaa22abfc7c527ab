"""What a call costs, counted: nothing here looks at a clock.

The same code on the same input gives the same numbers, on any machine and however busy
it is. They differ between minor versions of Python, which has other bytecodes in each.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Action = Callable[[], object]


def bytecodes(action: Action) -> int:
    """Return how many instructions of Python's virtual machine an action takes.

    Those of libraries that are written in Python too. A loop over environments shows
    here, whatever is in it; what numpy does within one instruction does not.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return trace

    with _alone():
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            action()
        finally:
            sys.settrace(before)
    return count


def calls(action: Action) -> int:
    """Return how many functions an action calls: Python's, and those written in C.

    An instruction such as ``a + b`` is none, nor are numpy's ufuncs and classes.
    """
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" or event == "c_call"

    with _alone():
        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            action()
        finally:
            sys.setprofile(before)
    # The last call of all is the one that ended the counting.
    return count - 1


def peak_bytes(action: Action) -> int:
    """Return the most memory an action has at a time, over what there was before.

    What Python and numpy ask for; neither that of native libraries, nor what numpy
    still has at hand of arrays that were let go (below 1 KiB each).
    """
    with _traced():
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        action()
        return tracemalloc.get_traced_memory()[1] - before


def kept_bytes(action: Action, times: int) -> int:
    """Return how much more memory there is after an action was done ``times`` times."""
    with _traced():
        action()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(times):
            action()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before


@contextmanager
def _alone() -> Iterator[None]:
    """Keep the collector from running in between: what it ends is not the action's."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _traced() -> Iterator[None]:
    with _alone():
        tracemalloc.start()
        try:
            yield
        finally:
            tracemalloc.stop()
