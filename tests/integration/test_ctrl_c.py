"""Ctrl-C ends every command at once, silently, and leaves nothing."""

import json
import os
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
# 2 s on a machine that does nothing else.
SOON_S = 8.0
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
        began_s = time.monotonic()
        try:
            out, err = self.process.communicate(timeout=60)
        finally:
            self.end()
        assert time.monotonic() - began_s < SOON_S
        assert psutil.wait_procs(children, timeout=5)[1] == []
        return self.process.returncode, out, err

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.mark.kafka
@pytest.mark.parametrize("command", ["stop", "delete"])
def test_who_waits_for_roles_that_do_not_end(rig, command):  # noqa: F811
    name = rig.launch(rig.spec()).published.experiment.name
    rig.coordination.register_role(name, "learner/0", 1)
    started = Command(command, name, *(["--yes"] if command == "delete" else []))
    assert started.process.stderr.readline() == "waiting for learner/0\n"
    assert started.interrupt() == (130, "", "")
    rig.coordination.forget_role(name, "learner/0")


@pytest.mark.kafka
def test_a_sweep(rig):  # noqa: F811
    name = rig.spec().name
    started = Command(
        "launch", str(SAMPLE), "--set", f"metadata.name={name}", "--seeds", "40",
        "--set", "spec.topics.partitions=1",
    )  # fmt: skip
    rig.names += [f"{name}-s{seed}" for seed in range(1, 41)]
    assert f"{name}-s1 launched" in started.process.stdout.readline()
    code, out, err = started.interrupt()
    assert (code, err) == (130, "")
    assert len(out.splitlines()) < 39  # else it was not interrupted
    assert "Traceback" not in out


@pytest.mark.kafka
def test_who_follows_events(rig):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name, run_id = published.experiment.name, published.run_id
    event = make_event(name, run_id, "worker", 0, "started", "info", "why")
    rig.sender.send_and_wait(topic_name(EVENTS, name), encode(event), "worker/0")
    started = Command("events", name, "-f")
    assert "started: why" in started.process.stdout.readline()
    assert started.interrupt() == (130, "", "")


def test_who_follows_logs(own):
    path = own.data_dir / "experiments/e/20260101T000000-aaaaaa/logs/worker-0.log"
    path.parent.mkdir(parents=True)
    line = {"time": "2026-01-02T12:00:00.000Z", "level": "INFO", "message": "here"}
    path.write_text(json.dumps({**line, "logger": "x"}) + "\n")
    started = Command("logs", "e", "-f")
    assert "here" in started.process.stdout.readline()
    code, out, err = started.interrupt()
    assert (code, out) == (130, "") and "Traceback" not in err
    assert len(err.splitlines()) == 1  # that no cluster runs


@pytest.mark.kafka
@pytest.mark.parametrize("command", ["launch", "resume", "scale"])
def test_whenever_it_comes(rig, command):  # noqa: F811
    """From the first import to the last answer: later and later, until it is late."""
    experiment = rig.spec()
    name = experiment.name
    arguments = {
        "launch": [str(SAMPLE), "--fresh", *ONE_PARTITION, f"metadata.name={name}"],
        "resume": [name],
        "scale": [name, "workers=3"],
    }[command]
    rig.launch(experiment)
    change(rig.settings, name, lambda e: in_state(e, "paused"))
    codes: list[int] = []
    while 0 not in codes:
        started = Command(command, *arguments)
        time.sleep(0.05 + 0.15 * len(codes))  # the moment is what is tried
        code, out, err = started.interrupt()
        codes.append(code)
        is_early = "KeyboardInterrupt" in err or "Fatal Python error: init" in err
        is_early |= (code, out, err) == (-signal.SIGINT, "", "")
        if code != 130 and is_early and "__main__.py" not in err:
            continue  # Python was not ready yet, let alone what is tried here
        hint = "no agent runs: start one with `rollstream agent`\n"
        assert code in (0, 130), err
        assert err in ("", hint), f"after {len(codes)} tries"
        assert not out or name in out
        assert len(codes) < 100
    assert codes.count(130) >= 3
    assert rig.coordination.claimed_by(name) is None
    # Whatever was written: it can be read, and is not a refused one.
    _, entry = rig.in_force(name)
    assert entry.accepted is not None and entry.refused is None
