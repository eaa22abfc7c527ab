"""The whole thing, as a user runs it, with what can go wrong going wrong."""

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

from tests.unit.test_experiment import SAMPLE

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
NAMES = {
    "experiment", "state", "env_steps", "updates", "policy_version",
    "eval_return_mean", "lost_steps", "recovered_steps", "duplicate_steps",
    "unrestorable_rows", "dead_letters", "wall_s", "env_steps_per_s", "resumed",
}  # fmt: skip


class Command:
    """A `rollstream run` in the background, on the session's cluster."""

    def __init__(self, name, *arguments, log):
        self.name = name
        self.log = log
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "rollstream.cli", "run", str(SAMPLE), "--json",
                "--set", f"metadata.name={name}", *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def roles(self):
        """pids by role/index."""
        found = {}
        for process in psutil.process_iter(["pid", "cmdline"]):
            words = process.info["cmdline"] or []
            if self.name in words and "-m" in words and "rollstream.cli" not in words:
                module = words[words.index("-m") + 1]
                found[f"{module}/{words[-1]}"] = process.info["pid"]
        return found

    def figures(self):
        """The newest plain line's env steps, updates and policy version."""
        lines = re.findall(
            r"env steps ([\d,]+) .* updates ([\d,]+) .* policy (-?\d+)",
            self.log.read_text(),
        )
        if not lines:
            return 0, 0, -1
        return tuple(int(part.replace(",", "")) for part in lines[-1])

    def wait_for(self, condition, timeout_s=90.0):
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline_s, self.log.read_text()
            time.sleep(0.05)

    def finish(self, timeout_s=200.0):
        """Exit code, and the JSON object where there is one."""
        out, _ = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, json.loads(out) if out.strip() else None


@pytest.fixture
def launch(settings, tmp_path):
    started = []

    def start(name, *arguments):
        log = tmp_path / f"{name}-{len(started)}.log"
        command = Command(name, *arguments, log=log)
        started.append(command)
        return command

    yield start
    for command in started:
        command.process.kill()
        command.process.wait()
        if command.process.stdout:
            command.process.stdout.close()
        for pid in command.roles().values():
            os.kill(pid, signal.SIGKILL)


def test_cartpole_is_learnt_though_every_role_is_killed_once(launch, settings):
    run = launch("killed", "--set", "spec.learner.checkpointIntervalS=2")
    run.wait_for(lambda: run.figures()[1] > 0)
    for role in ("producers.worker/0", "stream_processors.app/0", "learner.train/0"):
        os.kill(run.roles()[role], signal.SIGKILL)
    code, summary = run.finish()
    assert (code, summary["state"]) == (0, "finished"), run.log.read_text()
    assert summary.keys() >= NAMES
    assert summary["eval_return_mean"] >= 475
    assert summary["lost_steps"] == 0
    assert summary["dead_letters"] == 0
    assert run.roles() == {}
    text = run.log.read_text()
    for role in ("worker/0", "processor/0", "learner/0"):
        assert f"{role} ended with code -9" in text
    directory = Path(re.search(r"files +(\S+)", text)[1])
    assert (directory / "curve.png").read_bytes().startswith(b"\x89PNG")

    again = launch("killed", "--set", "spec.learner.checkpointIntervalS=2")
    code, repeated = again.finish(timeout_s=30)
    assert (code, repeated) == (0, summary)
    assert "is finished already" in again.log.read_text()


def test_ctrl_c_leaves_nothing_and_a_second_run_resumes(launch):
    run = launch("resumed", "--set", "spec.seed=2")
    run.wait_for(lambda: run.figures()[1] > 0)
    run.process.send_signal(signal.SIGINT)
    started_s = time.monotonic()
    code, nothing = run.finish(timeout_s=20)
    assert (code, nothing) == (130, None)
    assert time.monotonic() - started_s < 10
    assert run.roles() == {}
    steps, updates = stopped_at(run)
    assert updates > 0

    again = launch("resumed", "--set", "spec.seed=2")
    code, summary = again.finish()
    assert code == 0, again.log.read_text()
    assert summary["resumed"] is True
    assert summary["lost_steps"] == summary["unrestorable_rows"] == 0
    assert summary["env_steps"] > steps and summary["updates"] > updates


def stopped_at(run):
    text = run.log.read_text()
    steps = re.search(r"^env steps +([\d,]+)", text, re.M)[1]
    updates = re.search(r"^updates +([\d,]+)", text, re.M)[1]
    return int(steps.replace(",", "")), int(updates.replace(",", ""))


def test_a_third_seed_reaches_the_target_and_fresh_starts_over(launch):
    run = launch("seeded", "--set", "spec.seed=3")
    code, summary = run.finish()
    assert code == 0, run.log.read_text()
    assert summary["eval_return_mean"] >= 475
    assert summary["lost_steps"] == summary["duplicate_steps"] == 0
    fresh = launch(
        "seeded",
        "--fresh",
        *("--set", "spec.seed=3"),
        *("--set", "spec.stop.envSteps=5000"),
        *("--set", "spec.stop.meanReturn=null"),
    )
    code, second = fresh.finish()
    assert (code, second["resumed"]) == (0, False)
    assert 5000 <= second["env_steps"] < summary["env_steps"]
    assert second["lost_steps"] == 0


def test_a_killed_command_leaves_no_role_behind(launch):
    run = launch("orphaned")
    run.wait_for(lambda: len(run.roles()) == 5)
    run.process.kill()
    run.process.wait()
    deadline_s = time.monotonic() + 15
    while run.roles():
        assert time.monotonic() < deadline_s, run.roles()
        time.sleep(0.1)


def test_a_role_that_cannot_start_ends_the_run_with_its_reason(launch):
    run = launch("broken", "--env-module", "no_such_module")
    code, _ = run.finish(timeout_s=60)
    assert code == 1
    assert "no_such_module" in run.log.read_text()
