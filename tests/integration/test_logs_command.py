"""Logs of real processes, as a person follows them."""

import contextlib
import dataclasses
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from infra.control.experiments import run_directory
from infra.control.scheduler import Assignment
from infra.control.supervisor import Supervisor
from infra.log_files import LogFile
from infra.monitoring.event_log import EventLog
from schemas.records import Member
from schemas.topics import MEMBERS
from tests.integration.command_rig import interrupted, lines_of
from tests.unit.envs.graphs import RUN_ID
from tests.unit.envs.trial import Trial, until

ROOT = Path(__file__).parents[2]
HOSTILE = """
import gymnasium
class Hostile(gymnasium.Env):
    def __init__(self):
        print("an environment prints")
        raise ValueError("first\\n\\x1b[31msecond")
gymnasium.register("Hostile-v0", Hostile)
"""
TOLD = r"ValueError('first\n\x1b[31msecond')"
WRITER = """
import logging, os, sys, time
from pathlib import Path
from infra.log_rotation import EmptiedInPlace
from infra.logs import json_formatter
path, index, shown = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
handler = EmptiedInPlace(path, max_bytes=75_000)
handler.setFormatter(json_formatter({"role": "worker", "index": index}))
logging.basicConfig(level="INFO", handlers=[handler])
for n in range(2_000):
    # Who follows may stand still; what is moved aside for the fourth time is gone.
    while n % 250 == 0 < n and f'"{index}:{n - 250} ' not in shown.read_text():
        time.sleep(0.05)
    logging.info("%d:%d %s", index, n, "x" * 100)
logging.warning("the end")
"""


def logs_directory(data_dir, name="exp", run="20260101T000000-aaaaaa"):
    found = data_dir / "experiments" / name / run / "logs"
    found.mkdir(parents=True)
    return found


def write(path, *messages, at="2026-01-02T12:00:00.000Z", level="INFO"):
    with path.open("a") as file:
        for message in messages:
            values = {"time": at, "level": level, "logger": "x", "message": message}
            file.write(json.dumps(values) + "\n")


def test_logs_are_followed_while_they_grow_and_rotate(own, command, tmp_path):
    directory = logs_directory(own.data_dir)
    write(directory / "worker-0.log", "before")
    process, out, error = command("logs", "exp", "-f", "--json")
    until(lambda: "before" in out.read_text())
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    # One of them is new to who follows.
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(subprocess.Popen(
                [sys.executable, script, directory / f"worker-{index}.log",
                 str(index), out],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            ))
            for index in (0, 1)
        ]  # fmt: skip
        for writer in writers:
            stack.callback(writer.kill)
        assert [writer.wait(120) for writer in writers] == [0, 0]
    until(lambda: out.read_text().count("the end") == 2)
    assert interrupted(process) == 130
    assert "Traceback" not in error.read_text()
    assert (directory / "worker-0.log.3").exists(), "it was rotated often"
    for index in (0, 1):
        said = [x["message"].split()[0] for x in lines_of(out) if x["index"] == index]
        before = ["before"] if index == 0 else []
        lines = [f"{index}:{n}" for n in range(2_000)]
        assert said == [*before, *lines, "the"]


def test_what_is_shown_is_what_was_asked_for(own, rollstream, shown):
    directory = logs_directory(own.data_dir)
    logs_directory(own.data_dir, run="20250101T000000-aaaaaa")  # has none
    old = logs_directory(own.data_dir, run="20250601T000000-aaaaaa")
    write(old / "worker-0.log", "of an older run")
    write(directory / "worker-0.log", "a", at="2026-01-02T12:00:01.000Z")
    write(directory / "learner-0.log", "b", at="2026-01-02T12:00:02.000Z")
    write(directory / "worker-0.log", "c", "\x1b[2J", at="2026-01-02T12:00:03.000Z")
    write(directory / "worker-1.log", "bad", level="ERROR")
    with (directory / "worker-1.log").open("a") as file:
        file.write("raw \x1b[31mtext\nTraceback (most recent call last):\nno end")

    def messages(*arguments):
        return [line["message"] for line in shown("logs", "exp", *arguments)]

    everything = messages()
    assert everything[:5] == ["bad", "a", "b", "c", "\x1b[2J"]
    assert everything[5:] == [
        "raw \x1b[31mtext", "Traceback (most recent call last):", "no end",
    ]  # fmt: skip
    assert messages("worker/0") == ["a", "c", "\x1b[2J"]
    assert messages("worker", "-n", "2") == everything[-2:]
    assert messages("learner") == ["b"]
    assert messages("--level", "error") == ["bad", *everything[-2:]]
    assert messages("worker/0", "--since", "2026-01-02T12:00:02Z") == ["c", "\x1b[2J"]
    assert messages("worker/0", "--since", "10m") == []
    code, text, error = rollstream("logs", "exp", "worker/0", "--since", "10m")
    assert (code, text) == (0, "")
    assert error.endswith("rollstream: no such lines of exp\n")
    code, text, error = rollstream("logs", "exp")
    assert code == 0 and "only this host's logs: expected a running cluster" in error
    assert "\x1b" not in text and "raw \N{REPLACEMENT CHARACTER}[31mtext" in text
    assert "2026-01-02T12:00:02.000Z info     learner/0    b" in text


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["logs", "nobody"], 1, "expected a running cluster, found none"),
        (["logs", "exp", "evaluator"], 1, "expected logs of evaluator in"),
        (["logs", "exp", "wroker"], 2, "did you mean worker?"),
        (["logs", "exp", "worker/x"], 2, "expected ROLE or ROLE/INDEX"),
        (["logs", "exp", "--level", "loud"], 2, "expected one of debug, info"),
        (["logs", "exp", "--since", "soon"], 2, "expected 30s, 10m, 2h, 1d"),
        (["logs", "../exp"], 2, "experiment name: expected"),
        (["events", "exp", "--severity", "bad"], 2, "expected one of info, warning"),
        (["events", "exp", "--kind", "startd"], 2, "did you mean started?"),
        (["events", "exp"], 1, "expected a running cluster, found none"),
    ],
)
def test_what_cannot_be_shown_is_explained(own, rollstream, arguments, code, told):
    write(logs_directory(own.data_dir) / "worker-0.log", "x")
    found, out, error = rollstream(*arguments)
    assert (found, out) == (code, "")
    assert told in " ".join(error.replace("│", " ").split())


@pytest.fixture
def trial(settings):
    made = Trial(settings, env={"id": "Hostile-v0"})
    yield made
    made.close()


@pytest.mark.kafka
def test_what_an_environment_says_of_its_failure_arrives_whole(
    trial, tmp_path, monkeypatch, rollstream, shown
):
    (tmp_path / "hostile_env.py").write_text(HOSTILE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    settings = trial.settings.model_copy(update={"env_modules": ("hostile_env",)})
    directory = run_directory(settings, trial.name, RUN_ID) / "logs"
    supervisor = Supervisor(settings, trial.name, directory)
    worker = Assignment("worker", 0)
    try:
        supervisor.start([worker])
        (end,) = until(supervisor.poll)
    finally:
        supervisor.stop(1.0)
    assert (end.code, end.assignment) == (1, worker)
    assert TOLD in end.last_line
    lines = LogFile(directory / "worker-0.log", "worker", 0).tail(None)
    raw = {line.message for line in lines if line.is_raw}
    assert raw == {"an environment prints"}
    (event, failure) = [line for line in lines if line.level == "ERROR"]
    assert TOLD in failure.message
    assert event.message.startswith("worker-failed: ")

    (found,) = [x.event for x in EventLog(settings, trial.name).read()]
    assert (found.role, found.index, found.kind) == ("worker", 0, "worker-failed")
    assert TOLD in found.reason
    code, out, _ = rollstream("events", trial.name)
    assert code == 0 and TOLD in out
    (_, line) = shown("logs", trial.name, "--level", "error")
    assert line["message"] == failure.message
    assert (line["experiment"], line["role"], line["index"]) == (
        trial.name, "worker", 0,
    )  # fmt: skip


@pytest.mark.kafka
def test_a_log_on_another_host_is_named_with_it(trial, rollstream):
    member = Member(trial.name, RUN_ID, "worker", 0, platform.node(), 1, 0)
    for index, host in enumerate([platform.node(), "other\x1b[31mhost"]):
        member = dataclasses.replace(member, index=index, host=host)
        trial.send(MEMBERS, member, f"worker/{index}")
    directory = run_directory(trial.settings, trial.name, RUN_ID) / "logs"
    directory.mkdir(parents=True)
    write(directory / "worker-0.log", "here")
    code, out, error = rollstream("logs", trial.name)
    assert code == 0 and "here" in out
    assert error == (
        "rollstream: worker/1: its log is on host other\N{REPLACEMENT CHARACTER}"
        f"[31mhost: $ROLLSTREAM_DATA_DIR/experiments/{trial.name}/{RUN_ID}/logs/"
        "worker-1.log\n"
    )
    code, out, error = rollstream("logs", trial.name, "worker/1")
    assert (code, out) == (1, "") and "on host other" in error
