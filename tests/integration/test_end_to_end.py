"""The whole thing, as a user runs it, with what can go wrong going wrong."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from infra.cluster.local import LocalCluster
from infra.settings import Settings
from tests.role_processes import role_processes
from tests.unit.test_experiment import SAMPLE

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.timeout(900),
]
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
ROLES = ("worker/0", "processor/0", "learner/0")
# What is promised of Ctrl-C, and how long a busy machine may stand still meanwhile.
STOPPED_S = 10.0
STALL_S = 10.0


def stopped_within_s():
    """The promise; longer where there is other work for the cores."""
    share = os.getloadavg()[0] / (os.cpu_count() or 1)
    return STOPPED_S if share <= 1 else STOPPED_S * share + STALL_S


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
            with contextlib.suppress(ProcessLookupError):  # ended in this moment
                os.kill(pid, signal.SIGKILL)

    @property
    def text(self):
        """What it has said beside the JSON object."""
        return self.log.read_text()

    def roles(self):
        """pids by role/index."""
        return role_processes(self.name)

    def figures(self):
        """The newest plain line's env steps, updates and policy version."""
        lines = re.findall(
            r"env steps ([\d,]+) .* updates ([\d,]+) .* policy (-?\d+)",
            self.text,
        )
        if not lines:
            return 0, 0, -1
        return tuple(int(part.replace(",", "")) for part in lines[-1])

    def wait_for(self, condition, timeout_s=240.0):
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline_s, self.text
            time.sleep(0.05)

    def finish(self, timeout_s=400.0):
        """Exit code, and the JSON object where there is one."""
        try:
            out, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.text) from None
        self._stderr.close()
        return self.process.returncode, json.loads(out) if out.strip() else None


@pytest.fixture
def launch(settings, tmp_path):
    # Who runs the test again, or beside this one, has other names.
    suffix = uuid.uuid4().hex[:6]
    started = []

    def start(name, *arguments, **environment):
        log = tmp_path / f"{name}-{len(started)}.log"
        command = Command(f"{name}-{suffix}", *arguments, log=log, **environment)
        started.append(command)
        return command

    yield start
    with contextlib.ExitStack() as left:
        for command in started:
            left.callback(command.end)


@pytest.fixture
def own_cluster(tmp_path):
    """Variables with which a command starts a cluster for itself."""
    yield {"ROLLSTREAM_DATA_DIR": str(tmp_path), **WITHOUT_CLUSTER}
    nowhere = {"bootstrap_servers": None, "zookeeper": None}
    LocalCluster(Settings(data_dir=tmp_path, **nowhere)).stop()


@pytest.fixture
def launch_alone(own_cluster, launch):
    """`launch`, there: what it has started has ended before its cluster is stopped."""
    return lambda *arguments: launch(*arguments, **own_cluster)


def test_nothing_is_lost_though_every_role_and_the_broker_are_killed_once(
    launch_alone, tmp_path
):
    goal = ("--set", "spec.stop={envSteps: 60000}")
    run = launch_alone("killed", *SLOWLY, *goal)
    run.wait_for(lambda: run.figures()[1] > 0)
    for role in ROLES:
        os.kill(run.roles()[role], signal.SIGKILL)
    run.wait_for(lambda: all(f"{r} ended with code -9" in run.text for r in ROLES))
    os.kill(broker_pid(tmp_path), signal.SIGKILL)
    code, summary = run.finish()
    assert (code, summary["state"]) == (0, "finished"), run.text
    assert "kafka had died and was started again" in run.text
    assert summary.keys() >= NAMES
    assert summary["env_steps"] >= 60_000
    assert summary["resumed"] is True
    assert summary["lost_steps"] == 0
    assert summary["dead_letters"] == 0
    assert run.roles() == {}
    directory = Path(re.search(r"files +(\S+)", run.text)[1])
    assert (directory / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_leaves_nothing_and_a_second_run_resumes(launch):
    # A number of steps as the goal: a pole may balance before it is interrupted.
    goal = ("--set", "spec.stop={envSteps: 60000}", "--set", "spec.seed=2")
    run = launch("resumed", *SLOWLY, *goal)
    run.wait_for(lambda: run.figures()[1] > 0)
    run.process.send_signal(signal.SIGINT)
    started_s = time.monotonic()
    code, nothing = run.finish()
    assert (code, nothing) == (130, None)
    assert time.monotonic() - started_s < stopped_within_s()
    assert run.roles() == {}
    steps, updates = stopped_at(run)
    assert updates > 0

    again = launch("resumed", *QUICKLY, *goal)
    code, summary = again.finish()
    assert code == 0, again.text
    assert summary["resumed"] is True
    assert summary["lost_steps"] == summary["unrestorable_rows"] == 0
    assert summary["env_steps"] > steps and summary["updates"] > updates


def stopped_at(run):
    text = run.text
    steps = re.search(r"^env steps +([\d,]+)", text, re.M)[1]
    updates = re.search(r"^updates +([\d,]+)", text, re.M)[1]
    return int(steps.replace(",", "")), int(updates.replace(",", ""))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cartpole_reaches_475(launch, seed):
    run = launch(f"seeded-{seed}", "--set", f"spec.seed={seed}")
    code, summary = run.finish()
    assert code == 0, run.text
    assert summary["state"] == "finished"
    assert summary["eval_return_mean"] >= 475
    # Repeated batches are left out: a processor that stood still has its work redone.
    assert summary["lost_steps"] == 0


def test_a_finished_run_repeats_its_summary_and_refuses_changes_unless_fresh(launch):
    goal = ("--set", "spec.stop={envSteps: 5000}")
    first = launch("fresh", *goal)
    code, summary = first.finish()
    assert (code, summary["lost_steps"]) == (0, 0), first.text

    again = launch("fresh", *goal)
    assert again.finish() == (0, summary), again.text
    assert "is finished already" in again.text

    change = ("--set", "spec.processor.gamma=0.5")
    changed = launch("fresh", *goal, *change)
    assert changed.finish() == (2, None), changed.text
    assert "spec.processor.gamma: expected 0.99" in changed.text

    fresh = launch("fresh", "--fresh", *goal, *change)
    code, second = fresh.finish()
    assert (code, second["resumed"]) == (0, False), fresh.text
    assert second["env_steps"] >= 5000
    assert second["lost_steps"] == 0
    assert "is finished already" not in fresh.text


def test_a_killed_command_leaves_no_role_behind(launch):
    run = launch("orphaned")
    # As soon as they exist: they are still importing, and learn of it afterwards.
    run.wait_for(lambda: len(run.roles()) == 5)
    run.process.kill()
    run.process.wait()
    deadline_s = time.monotonic() + 120
    while run.roles():
        assert time.monotonic() < deadline_s, run.roles()
        time.sleep(0.1)


def test_ctrl_c_ends_in_time_though_the_brokers_are_frozen(launch_alone, tmp_path):
    goal = ("--set", "spec.stop={envSteps: 1000000}")
    run = launch_alone("frozen", *SLOWLY, *goal)
    run.wait_for(lambda: run.figures()[0] > 0)
    broker = broker_pid(tmp_path)
    os.kill(broker, signal.SIGSTOP)
    run.process.send_signal(signal.SIGINT)
    started_s = time.monotonic()
    code, _ = run.finish()
    assert code == 130, run.text
    # Two seconds in which Kafka, which has no time to be polite, is killed.
    assert time.monotonic() - started_s < stopped_within_s() + 2
    assert run.roles() == {}
    assert not psutil.pid_exists(broker)


def broker_pid(directory):
    for process in psutil.process_iter(["pid", "cmdline"]):
        words = process.info["cmdline"] or []
        if "kafka.Kafka" in words and any(str(directory) in word for word in words):
            return process.info["pid"]
    raise AssertionError("no broker")


def test_a_role_that_cannot_start_ends_the_run_with_its_reason(launch):
    run = launch("broken", ROLLSTREAM_LEARNER_MODULES="no_such_module")
    code, _ = run.finish()
    assert code == 1
    assert "No module named 'no_such_module'" in run.text


def test_a_module_that_is_not_there_is_refused_before_anything_starts(launch):
    run = launch("refused", "--env-module", "no_such_module")
    code, _ = run.finish()
    assert code == 2
    assert "No module named 'no_such_module'" in run.text
