"""Ctrl-C is heard, once for each clean-up; closed streams are no surprise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from rollstream import interrupts
from rollstream.errors import exits_with_a_message
from rollstream.interrupts import Terminated, interruptible


def interrupt(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)
    for _ in range(1_000):  # handlers run between instructions
        pass


class Swallows:
    def __del__(self) -> None:
        interrupt()


def test_a_second_one_does_not_cut_a_clean_up_short():
    cleaned = False
    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            interrupt()
        finally:
            interrupt()
            interrupt(signal.SIGTERM)
            cleaned = True
    assert cleaned


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_was_lost_is_heard_when_it_is_sent_again(monkeypatch):
    with interruptible():
        Swallows()
    monkeypatch.setattr(interrupts, "AGAIN_S", 0.0)
    with pytest.raises(Terminated), interruptible():
        Swallows()
        interrupt(signal.SIGTERM)


def test_one_before_a_command_has_begun_leaves_no_traceback():
    with pytest.raises(SystemExit) as ended, exits_with_a_message(), interruptible():
        interrupt()
    assert ended.value.code == 130


STREAMS = """
import os, sys
from rollstream.streams import open_streams
open_streams()
nothing = os.stat(os.devnull)
assert [os.fstat(n).st_ino for n in range(3)] == [nothing.st_ino] * 3
assert not sys.stdin.isatty() and not sys.stdout.isatty()
print("said to nobody"); print("nor this", file=sys.stderr)
"""


def test_streams_that_were_closed_are_nothing():
    command = '"$1" -c "$2" <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", command, "sh", sys.executable, STREAMS])
    assert done.returncode == 0


def test_what_an_encoding_lacks_does_not_end_a_command():
    code = (
        "from rollstream.streams import open_streams; open_streams(); "
        "print('done \\u2026')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "done ?\n")
