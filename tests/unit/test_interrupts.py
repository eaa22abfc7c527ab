"""Ctrl-C is heard, once for each clean-up; closed streams are no surprise."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollstream import interrupts
from rollstream.errors import exits_with_a_message
from rollstream.interrupts import Terminated, interruptible
from tests.unit.test_experiment import SAMPLE

ROOT = Path(__file__).parents[2]


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


def test_one_that_is_lost_is_not_told_of(capsys):
    with interruptible():
        Swallows()
    assert capsys.readouterr().err == ""


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


@pytest.fixture
def silent():
    """Where servers listen that take connections and never say a word."""
    with contextlib.ExitStack() as opened:
        servers = [opened.enter_context(socket.create_server(("127.0.0.1", 0)))
                   for _ in range(2)]  # fmt: skip
        yield servers


# All wait for Kafka, or for ZooKeeper, in calls of native code or of Python.
@pytest.mark.parametrize(
    ("number", "command"),
    [
        (signal.SIGTERM, ["ps"]),
        (signal.SIGINT, ["ps"]),
        (signal.SIGINT, ["launch", str(SAMPLE)]),
        (signal.SIGINT, ["resume", "e"]),
        (signal.SIGINT, ["stop", "e"]),
        (signal.SIGINT, ["delete", "e", "--yes"]),
        (signal.SIGINT, ["events", "e", "-f"]),
        (signal.SIGINT, ["diff", str(SAMPLE)]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value.name,
)
def test_who_waits_for_brokers_that_do_not_answer_leaves_soon(silent, number, command):
    kafka, zookeeper = (f"127.0.0.1:{each.getsockname()[1]}" for each in silent)
    process = subprocess.Popen(
        [sys.executable, "-m", "rollstream", *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        stdin=subprocess.DEVNULL,
        env={
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": kafka,
            "ROLLSTREAM_ZOOKEEPER": zookeeper,
            "OMP_NUM_THREADS": "1",
        },
    )  # fmt: skip
    try:
        wait_for_a_connection(silent)
        process.send_signal(number)
        began_s = time.monotonic()
        out, err = process.communicate(timeout=60)
        took_s = time.monotonic() - began_s
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (128 + number, "", "")
    assert took_s < 8  # 1.5 s where nothing else is done; without, 10 to 30 s


def wait_for_a_connection(servers, timeout_s=60.0):
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        for server in servers:
            server.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                server.accept()[0].detach()  # open until this process ends
                return
        time.sleep(0.02)
    raise AssertionError("nobody has connected")


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
