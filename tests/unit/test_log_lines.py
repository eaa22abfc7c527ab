"""A line of a log is read whatever it holds; the last words of a process are found."""

import os
import subprocess
import sys
import time

import pytest

from infra.log_files import LogFile, last_words
from infra.log_lines import LineParser
from tests.unit.logged_lines import NOON_MS, at, logged, write


def parse(*lines, written_at_ms=NOON_MS + 99_000):
    encoded = [x if isinstance(x, bytes) else x.encode() for x in lines]
    return LineParser("worker", 2).parse(encoded, written_at_ms)


def test_a_logged_line_is_read_as_it_was_said():
    (line,) = parse(logged("one\ntwo", "ERROR", exception="Traceback\nBoom: x"))
    assert (line.role, line.index, line.time_ms) == ("worker", 2, NOON_MS)
    assert (line.level, line.message, line.is_raw) == ("ERROR", "one\ntwo", False)
    assert line.exception == "Traceback\nBoom: x"
    assert line.in_short(100) == "one two: Boom: x"
    assert line.in_short(5) == "one t"


@pytest.mark.parametrize(
    "line",
    [
        "plain text",
        '{"time": "',
        '{"time": "yesterday", "level": "INFO", "message": "x"}',
        '{"time": "2026-01-02T12:00:00Z", "level": 5, "message": "x"}',
        '{"time": "0001-01-01T00:00:00+23:59", "message": "x"}',
        '{"time": "2026-01-02T12:00:00Z", "x": ' + "[" * 50_000,
        '["time"]',
        '{"time": "2026-01-02T12:00:00Z", "n": ' + "9" * 5_000 + "}",
        b"\xff\xfe not text \x1b[31m",
    ],
)
def test_what_is_not_ours_is_raw_text(line):
    (found,) = parse(line)
    text = line if isinstance(line, str) else line.decode(errors="replace")
    assert (found.is_raw, found.level, found.message) == (True, "INFO", text[:65_536])
    assert found.time_ms == NOON_MS + 99_000


def test_raw_text_without_a_line_end_does_not_hide_what_is_logged_after_it():
    raw, line = parse('progress 10%{"x": 1} ' + logged("still there"))
    assert (raw.message, raw.is_raw) == ('progress 10%{"x": 1}', True)
    assert (line.message, line.is_raw) == ("still there", False)


def test_a_raw_line_has_the_time_by_which_it_was_there():
    lines = parse("a", logged("b", at=at(1)), "c", logged("d", at=at(2)), "e")
    seconds = [(line.time_ms - NOON_MS) // 1000 for line in lines]
    assert seconds == [1, 1, 2, 2, 99]


def test_a_crash_is_an_error_from_its_first_line_until_somebody_logs():
    lines = parse(
        "an environment prints",
        "Traceback (most recent call last):",
        '  File "x.py", line 1',
        "ModuleNotFoundError: no x",
        logged("next life"),
        "prints again",
        "Fatal Python error: Segmentation fault",
        "Current thread 0x1:",
    )
    assert [line.level for line in lines] == [
        "INFO", "ERROR", "ERROR", "ERROR", "INFO", "INFO", "ERROR", "ERROR",
    ]  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "worker-0.log"


def now(offset_s=0.0):
    seconds = time.time() + offset_s
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([("WARNING", "w"), ("ERROR", "the cause"), ("INFO", "leaving")], "the cause"),
        ([("WARNING", "close"), ("INFO", "leaving")], "close"),
        ([("INFO", "leaving")], "leaving"),
        ([("ERROR", "first"), ("CRITICAL", "last")], "last"),
        ([("ERROR", "x" * 900)], "x" * 500),
        ([("ERROR", "of\nmany\n\nlines")], "of many lines"),
        ([("ERROR", "re\x1b[31md\udc80")], "re\ufffd[31md\ufffd"),
    ],
)
def test_the_last_words_are_the_worst_that_was_said_last(path, lines, words):
    write(path, *(logged(text, level, now()) for level, text in lines))
    write(path, "an environment prints at exit")
    text = last_words(path, 60.0)
    assert text == words if words != "leaving" else "an environment prints at exit"


def test_an_exception_is_told_with_the_message(path):
    trace = "Traceback (most recent call last):\n  File x\nValueError: boom"
    write(path, logged("unexpected", "ERROR", now(), exception=trace))
    assert last_words(path, 60.0) == "unexpected: ValueError: boom"


def test_a_process_is_not_blamed_for_the_one_before(path):
    write(path, logged("an old error", "ERROR", now(-60)), logged("new", at=now()))
    assert last_words(path, 30.0) == "new"
    assert last_words(path, 90.0) == "an old error"


def test_a_crash_before_anything_was_logged_has_last_words(path):
    write(path, logged("an old error", "ERROR", now(-60)))
    write(path, "Traceback (most recent call last):", "ImportError: no x", end="")
    assert last_words(path, 30.0) == "ImportError: no x"
    assert last_words(path.with_name("none.log"), 30.0) == "it said nothing"


def test_a_crash_in_native_code_is_told_by_its_kind_and_place(path):
    write(path, logged("worker-started", at=now()))
    code = "import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(0)"
    with path.open("ab") as log:
        assert subprocess.run([sys.executable, "-c", code], stderr=log).returncode < 0
    words = last_words(path, 60.0)
    assert words.startswith("Fatal Python error: Segmentation fault, File ")
    assert words.endswith("in string_at") and "Extension modules" not in words
    write(path, logged("it was a child's", "ERROR", now()))
    assert last_words(path, 60.0) == "it was a child's"


def test_a_native_crash_is_told_by_python(path):
    body = (
        "import ctypes; from infra.logs import configure_logging; "
        "configure_logging('exp', 'worker', 0); ctypes.string_at(0)"
    )
    with path.open("ab") as output:
        done = subprocess.run(
            [sys.executable, "-c", body],
            stderr=output,
            env={**os.environ, "ROLLSTREAM_LOG_FILE": str(path)},
        )
    assert done.returncode < 0
    assert "Fatal Python error: Segmentation fault" in path.read_text()
    assert LogFile(path, "worker", 0).tail(None)[0].level == "ERROR"
