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

from infra.cluster.local import LocalCluster
from infra.settings import Settings
from tests.role_processes import role_processes
from tests.unit.test_experiment import SAMPLE

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.chaos]
NAMES = {
    "experiment", "state", "env_steps", "updates", "policy_version",
    "eval_return_mean", "lost_steps", "recovered_steps", "duplicate_steps",
    "unrestorable_rows", "dead_letters", "wall_s", "env_steps_per_s", "resumed",
}  # fmt: skip
# Slow enough that there is time to do harm before the pole balances.
SLOWLY = (
    *("--set", "spec.workers.maxEnvStepsPerS=1500"),
    *("--set", "spec.learner.checkpointIntervalS=2"),
)
WITHOUT_CLUSTER = {"KAFKA_BOOTSTRAP_SERVERS": "", "ROLLSTREAM_ZOOKEEPER": ""}
QUICKLY = ("--set", "spec.learner.checkpointIntervalS=2")


class Command:
    """A `rollstream run` in the background, on the session's cluster."""

    def __init__(self, name, *arguments, log, **environment):
        self.name = name
        self.log = log
        self._stderr = log.open("w")
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "rollstream.cli", "run", str(SAMPLE), "--json",
                "--set", f"metadata.name={name}", *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )  # fmt: skip

    def end(self):
        """Whatever a failed test has left."""
        self.process.kill()
        self.process.communicate()
        self._stderr.close()
        for pid in self.roles().values():
            os.kill(pid, signal.SIGKILL)

    def roles(self):
        """pids by role/index."""
        return role_processes(self.name)

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
        self._stderr.close()
        return self.process.returncode, json.loads(out) if out.strip() else None


@pytest.fixture
def launch(settings, tmp_path):
    started = []

    def start(name, *arguments, **environment):
        log = tmp_path / f"{name}-{len(started)}.log"
        command = Command(name, *arguments, log=log, **environment)
        started.append(command)
        return command

    yield start
    for command in started:
        command.end()


def test_nothing_is_lost_though_every_role_is_killed_once(launch, settings):
    goal = ("--set", "spec.stop={envSteps: 40000}")
    run = launch("killed", *SLOWLY, *goal)
    run.wait_for(lambda: run.figures()[1] > 0)
    for role in ("worker/0", "processor/0", "learner/0"):
        os.kill(run.roles()[role], signal.SIGKILL)
    code, summary = run.finish()
    assert (code, summary["state"]) == (0, "finished"), run.log.read_text()
    assert summary.keys() >= NAMES
    assert summary["env_steps"] >= 40_000
    assert summary["resumed"] is True
    assert summary["lost_steps"] == 0
    assert summary["dead_letters"] == 0
    assert run.roles() == {}
    text = run.log.read_text()
    for role in ("worker/0", "processor/0", "learner/0"):
        assert f"{role} ended with code -9" in text
    directory = Path(re.search(r"files +(\S+)", text)[1])
    assert (directory / "curve.png").read_bytes().startswith(b"\x89PNG")

    again = launch("killed", *SLOWLY, *goal)
    code, repeated = again.finish(timeout_s=30)
    assert (code, repeated) == (0, summary)
    assert "is finished already" in again.log.read_text()


def test_ctrl_c_leaves_nothing_and_a_second_run_resumes(launch):
    # A number of steps as the goal: a pole may balance before it is interrupted.
    goal = ("--set", "spec.stop={envSteps: 60000}", "--set", "spec.seed=2")
    run = launch("resumed", *SLOWLY, *goal)
    run.wait_for(lambda: run.figures()[1] > 0)
    run.process.send_signal(signal.SIGINT)
    started_s = time.monotonic()
    code, nothing = run.finish(timeout_s=60)
    assert (code, nothing) == (130, None)
    assert time.monotonic() - started_s < 10
    assert run.roles() == {}
    steps, updates = stopped_at(run)
    assert updates > 0

    again = launch("resumed", *QUICKLY, *goal)
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


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cartpole_reaches_475(launch, seed):
    run = launch(f"seeded-{seed}", "--set", f"spec.seed={seed}")
    code, summary = run.finish()
    assert code == 0, run.log.read_text()
    assert summary["state"] == "finished"
    assert summary["eval_return_mean"] >= 475
    assert summary["lost_steps"] == summary["duplicate_steps"] == 0


def test_fresh_starts_over(launch):
    goal = ("--set", "spec.stop={envSteps: 5000}")
    code, first = launch("fresh", *goal).finish()
    assert (code, first["lost_steps"]) == (0, 0)
    fresh = launch("fresh", "--fresh", *goal)
    code, second = fresh.finish()
    assert (code, second["resumed"]) == (0, False)
    assert second["env_steps"] >= 5000
    assert second["lost_steps"] == 0
    assert "is finished already" not in fresh.log.read_text()


def test_a_killed_command_leaves_no_role_behind(launch):
    run = launch("orphaned")
    # As soon as they exist: they are still importing, and learn of it afterwards.
    run.wait_for(lambda: len(run.roles()) == 5)
    run.process.kill()
    run.process.wait()
    deadline_s = time.monotonic() + 15
    while run.roles():
        assert time.monotonic() < deadline_s, run.roles()
        time.sleep(0.1)


def test_ctrl_c_ends_in_time_though_the_brokers_are_frozen(tmp_path):
    """A cluster of its own, which is frozen before the interrupt."""
    log = tmp_path / "frozen.log"
    environment = {"ROLLSTREAM_DATA_DIR": str(tmp_path), **WITHOUT_CLUSTER}
    goal = ("--set", "spec.stop={envSteps: 1000000}")
    run = Command("frozen", *SLOWLY, *goal, log=log, **environment)
    try:
        run.wait_for(lambda: run.figures()[0] > 0)
        broker = broker_pid(tmp_path)
        os.kill(broker, signal.SIGSTOP)
        run.process.send_signal(signal.SIGINT)
        started_s = time.monotonic()
        code, _ = run.finish(timeout_s=30)
        assert code == 130, log.read_text()
        assert time.monotonic() - started_s < 12
        assert run.roles() == {}
        assert not psutil.pid_exists(broker)
    finally:
        run.end()
        stop_cluster(tmp_path)


def test_a_broker_that_dies_is_started_again_and_nothing_is_lost(tmp_path):
    log = tmp_path / "revived.log"
    environment = {"ROLLSTREAM_DATA_DIR": str(tmp_path), **WITHOUT_CLUSTER}
    goal = ("--set", "spec.stop={envSteps: 30000}")
    run = Command("revived", *SLOWLY, *goal, log=log, **environment)
    try:
        run.wait_for(lambda: run.figures()[0] > 0)
        os.kill(broker_pid(tmp_path), signal.SIGKILL)
        code, summary = run.finish()
        assert code == 0, log.read_text()
        assert summary["lost_steps"] == 0
        assert "kafka had died and was started again" in log.read_text()
    finally:
        run.end()
        stop_cluster(tmp_path)


def stop_cluster(directory):
    """Whatever a failed test has left."""
    nowhere = {"bootstrap_servers": None, "zookeeper": None}
    LocalCluster(Settings(data_dir=directory, **nowhere)).stop()


def broker_pid(directory):
    for process in psutil.process_iter(["pid", "cmdline"]):
        words = process.info["cmdline"] or []
        if "kafka.Kafka" in words and any(str(directory) in word for word in words):
            return process.info["pid"]
    raise AssertionError("no broker")


def test_a_changed_spec_is_refused_unless_fresh(launch):
    limit = ("--set", "spec.stop.envSteps=3000", "--set", "spec.stop.meanReturn=null")
    code, _ = launch("changed", *limit).finish()
    assert code == 0
    run = launch("changed", *limit, "--set", "spec.processor.gamma=0.5")
    code, nothing = run.finish(timeout_s=30)
    assert (code, nothing) == (2, None)
    assert "spec.processor.gamma: expected 0.99" in run.log.read_text()


def test_a_role_that_cannot_start_ends_the_run_with_its_reason(launch):
    run = launch("broken", ROLLSTREAM_LEARNER_MODULES="no_such_module")
    code, _ = run.finish(timeout_s=120)
    assert code == 1
    assert "No module named 'no_such_module'" in run.log.read_text()


def test_a_module_that_is_not_there_is_refused_before_anything_starts(launch):
    run = launch("refused", "--env-module", "no_such_module")
    code, _ = run.finish(timeout_s=60)
    assert code == 2
    assert "No module named 'no_such_module'" in run.log.read_text()
