"""What a process says becomes JSON lines; on a terminal, text that is harmless."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PASSWORD = 'hunter"2'
SPEAKER = """
import logging, os, sys, threading, warnings
from infra.logs import configure_logging
configure_logging({experiment!r}, "worker", 3)
log = logging.getLogger("some.library")
{body}
"""


def speak(body, experiment="exp", code=0, **environment):
    done = subprocess.run(
        [sys.executable, "-c", SPEAKER.format(body=body, experiment=experiment)],
        capture_output=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert done.returncode == code, done.stderr
    return done.stderr.decode()


def spoken(body, **more):
    return [json.loads(line) for line in speak(body, **more).splitlines()]


def test_a_line_says_who_said_it_when_and_what():
    (line,) = spoken('log.warning("%s\\nand more \\x1b[31m \\udc80", "one")')
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "WARNING",
        "experiment": "exp",
        "role": "worker",
        "index": 3,
        "logger": "some.library",
        "message": "one\nand more \x1b[31m \udc80",
    }
    assert list(line) == [
        "level", "experiment", "role", "index", "logger", "message",
    ]  # fmt: skip
    (agent,) = spoken('log.warning("x")', experiment=None)
    assert "experiment" not in agent and agent["role"] == "worker"


def test_nothing_that_python_reports_is_raw():
    lines = spoken(
        """
warnings.warn("careful")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("caught")
thread = threading.Thread(target=lambda: [][1], name="t1")
thread.start(); thread.join()
class Dying:
    def __del__(self): raise KeyError("at its end")
Dying()
raise RuntimeError("uncaught")
""",
        code=1,
    )
    found = [(line["level"], line["logger"]) for line in lines]
    assert found == [
        ("WARNING", "py.warnings"),
        ("ERROR", "some.library"),
        ("ERROR", "rollstream"),
        ("ERROR", "rollstream"),
        ("CRITICAL", "rollstream"),
    ]
    assert "UserWarning: careful" in lines[0]["message"]
    ends = [line["exception"].splitlines()[-1] for line in lines[1:]]
    assert ends == [
        "ZeroDivisionError: division by zero",
        "IndexError: list index out of range",
        "KeyError: 'at its end'",
        "RuntimeError: uncaught",
    ]
    assert "thread t1" in lines[2]["message"]


def test_a_library_cannot_say_who_we_are_nor_break_the_log():
    lines = spoken(
        """
log.error("a", extra={"role": "learner", "index": 9, "time": "never", "more": 5})
log.error("%d", "no number")
log.error({"a": "dict"})
log.error("x" * 100_000)
"""
    )
    assert [(line["role"], line["index"]) for line in lines] == [("worker", 3)] * 4
    assert lines[0]["time"] != "never"
    assert lines[1]["message"] == "%d (its arguments do not fit)"
    assert lines[2]["message"] == "{'a': 'dict'}"
    assert lines[3]["message"] == "x" * 16_384 + " [83616 characters more]"


def test_secrets_are_never_printed():
    text = speak(
        f"""
password = {PASSWORD!r}
log.error("it is %s", password)
log.error("%r", {{"sasl.password": "another one", "client.id": "shown"}})
log.error("sasl_plain_password=third, ssl.key.password: fourth")
try:
    raise ValueError(password)
except ValueError:
    log.exception("token-of-registry")
""",
        ROLLSTREAM_KAFKA_SASL_PASSWORD=PASSWORD,
        ROLLSTREAM_REGISTRY_TOKEN="token-of-registry",
    )
    for secret in ("hunter", "another one", "third", "fourth", "token-of-registry"):
        assert secret not in text
    assert "shown" in text and text.count("***") == 6


def test_the_level_is_a_setting_and_a_wrong_one_is_told():
    body = 'log.debug("quiet"); log.info("normal"); log.error("loud")'
    levels = {
        "debug": ["quiet", "normal", "loud"],
        "ERROR": ["loud"],
        "": ["normal", "loud"],
    }
    for level, wanted in levels.items():
        lines = spoken(body, ROLLSTREAM_LOG_LEVEL=level)
        assert [line["message"] for line in lines] == wanted
    first = spoken(body, ROLLSTREAM_LOG_LEVEL="chatty")[0]
    assert first["message"] == "ROLLSTREAM_LOG_LEVEL: expected a level, found 'chatty'"


def test_what_clients_repeat_while_the_broker_is_away_is_not_said():
    lines = spoken(
        """
logging.getLogger("aiokafka.conn").error("refused")
logging.getLogger("kazoo.client").warning("dropped")
logging.getLogger("rollstream.kafka").info("all brokers down")
logging.getLogger("rollstream.kafka").error("authentication failed")
"""
    )
    assert [line["message"] for line in lines] == ["authentication failed"]


def test_nor_is_it_said_by_a_command():
    """Which logs nothing itself: Python writes warnings to stderr all the same."""
    body = """
import logging
from rollstream.cli import app
app(["schema"], standalone_mode=False)
logging.getLogger("kazoo.client").warning("dropped")
"""
    done = subprocess.run(
        [sys.executable, "-c", body], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_a_terminal_gets_text_that_it_does_not_obey():
    ours, theirs = pty.openpty()
    body = 'log.error("title \\x1b]0;owned\\x07 and \\x9b2J\\nnext line")'
    with subprocess.Popen(
        [sys.executable, "-c", SPEAKER.format(body=body, experiment="exp")],
        stderr=theirs,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(theirs)
        text = b""
        try:
            while chunk := os.read(ours, 4096):
                text += chunk
        except OSError:  # how a terminal ends, on Linux
            pass
    os.close(ours)
    assert process.returncode == 0
    assert b"]0;owned" in text and b"\x1b]0;" not in text and b"\x07" not in text
    assert "\x9b".encode() not in text
    assert b"worker/3 title" in text and b'{"' not in text
    assert b"\x1b[" in text  # its colours
