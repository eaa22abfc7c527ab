"""Ctrl-C ends every command at once, silently, and leaves nothing."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from infra.control.edits import in_state
from infra.control.launching import change
from infra.monitoring.experiment_events import make_event
from schemas.codec import encode
from schemas.topics import EVENTS, topic_name
from tests.integration.control_rig import rig  # noqa: F401
from tests.unit.test_experiment import SAMPLE

ROOT = Path(__file__).parents[2]
# 2 s on a machine that does nothing else; what they wait for takes a minute and more.
SOON_S = 30.0
ONE_PARTITION = ("--set", "spec.topics.partitions=1", "--set")


class Command:
    """A command without a terminal; what it prints comes as it prints it."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rollstream", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def interrupt(self):
        """Return its code and what it had not yet printed; nothing of it may live."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=SOON_S)
        assert psutil.wait_procs(children, timeout=SOON_S)[1] == []
        return self.process.returncode, out, err

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def start():
    """Start commands; what a failed test has left of them is ended."""
    with contextlib.ExitStack() as started:

        def run(*arguments):
            command = Command(*arguments)
            started.callback(command.end)
            return command

        yield run


@pytest.mark.kafka
@pytest.mark.parametrize("command", ["stop", "delete"])
def test_who_waits_for_roles_that_do_not_end(rig, start, command):  # noqa: F811
    name = rig.launch(rig.spec()).published.experiment.name
    rig.coordination.register_role(name, "learner/0", 1)
    started = start(command, name, *(["--yes"] if command == "delete" else []))
    assert started.process.stderr.readline() == "waiting for learner/0\n"
    assert started.interrupt() == (130, "", "")
    rig.coordination.forget_role(name, "learner/0")


@pytest.mark.kafka
def test_a_sweep(rig, start):  # noqa: F811
    name, seeds = rig.spec().name, 200
    started = start(
        "launch", str(SAMPLE), "--set", f"metadata.name={name}",
        "--seeds", str(seeds), "--set", "spec.topics.partitions=1",
    )  # fmt: skip
    rig.names.append(f"{name}-s1")
    assert f"{name}-s1 launched" in started.process.stdout.readline()
    code, out, err = started.interrupt()
    told = len(out.splitlines())
    # And the one that was under way.
    rig.names += [f"{name}-s{seed}" for seed in range(2, told + 3)]
    assert (code, err) == (130, "")
    assert told < seeds - 1  # else it was not interrupted
    assert "Traceback" not in out


@pytest.mark.kafka
def test_who_follows_events(rig, start):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name, run_id = published.experiment.name, published.run_id
    event = make_event(name, run_id, "worker", 0, "started", "info", "why")
    rig.sender.send_and_wait(topic_name(EVENTS, name), encode(event), "worker/0")
    started = start("events", name, "-f")
    assert "started: why" in started.process.stdout.readline()
    assert started.interrupt() == (130, "", "")


def test_who_follows_logs(own, start):
    path = own.data_dir / "experiments/e/20260101T000000-aaaaaa/logs/worker-0.log"
    path.parent.mkdir(parents=True)
    line = {"time": "2026-01-02T12:00:00.000Z", "level": "INFO", "message": "here"}
    path.write_text(json.dumps({**line, "logger": "x"}) + "\n")
    started = start("logs", "e", "-f")
    assert "here" in started.process.stdout.readline()
    code, out, err = started.interrupt()
    assert (code, out) == (130, "") and "Traceback" not in err
    assert len(err.splitlines()) == 1  # that no cluster runs


MAIN = (ROOT / "rollstream/__main__.py").read_text()
# From this line of it on Ctrl-C is heard.
HEARS = MAIN[: MAIN.index("\n_signal.signal(")].count("\n") + 2


def came_too_early(code, out, err):
    """Whether Python was not ready yet, let alone what is tried here."""
    if (code, out, err) == (-signal.SIGINT, "", ""):
        return True
    lines = map(int, re.findall(r'__main__\.py", line (\d+)', err))
    told = "KeyboardInterrupt" in err or "Fatal Python error: init" in err
    return code != 130 and told and all(line <= HEARS for line in lines)


# Parts of the time that it takes; the last is late.
MOMENTS = [0.05, 0.25, 0.45, 0.6, 0.75, 0.9, 1.1]


@pytest.mark.kafka
@pytest.mark.parametrize("command", ["launch", "resume"])
def test_whenever_it_comes(rig, start, command):  # noqa: F811
    """From the first import to the last answer."""
    experiment = rig.spec()
    name = experiment.name
    arguments = {
        "launch": [str(SAMPLE), "--fresh", *ONE_PARTITION, f"metadata.name={name}"],
        "resume": [name],
    }[command]
    rig.launch(experiment)

    def tried(part):
        """Its code, and how long it took."""
        if command == "resume":  # there has to be something to do each time
            change(rig.settings, name, lambda e: in_state(e, "paused"))
        began_s = time.monotonic()
        started = start(command, *arguments)
        if part is None:
            out, err = started.process.communicate(timeout=120)
            code = started.process.returncode
        else:
            time.sleep(part * whole_s)  # the moment is what is tried
            code, out, err = started.interrupt()
        took_s = time.monotonic() - began_s
        if not came_too_early(code, out, err):
            hint = "no agent runs: start one with `rollstream agent`\n"
            assert code in (0, 130), err
            assert err in ("", hint), f"at {part}"
            assert not out or name in out
        return code, took_s

    code, whole_s = tried(None)
    assert code == 0
    interrupted = 0
    for _ in range(4):
        for part in MOMENTS:
            code, took_s = tried(part)
            interrupted += code == 130
            if code == 0:  # how fast it is depends on what else the machine does
                whole_s = min(whole_s, took_s)
        if interrupted >= 3:
            break
    assert interrupted >= 3
    assert rig.coordination.claimed_by(name) is None
    # Whatever was written: it can be read, and is not a refused one.
    _, entry = rig.in_force(name)
    assert entry.accepted is not None and entry.refused is None
