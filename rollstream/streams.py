"""stdin, stdout and stderr that are always there, and take any text."""

from __future__ import annotations

import io
import os
import sys


def open_streams() -> None:
    """Open what was closed when we were started, on nothing.

    Else `sys.stdout` is None, and, worse, descriptor 1 goes to the next socket or file
    that is opened: what native code prints would go there. What an encoding lacks is
    shown as "?".
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free descriptor: in this order it is the one of that name.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
