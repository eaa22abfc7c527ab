"""Processes forked from a warm server are like those that were started from nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from infra.control import forked
from infra.control.forked import EXIT_UNKNOWN, ForkedProcess
from infra.control.role import PARENT_PID
from infra.control.spawning import ExecSpawner, ForkServerSpawner

PROBE = "tests.unit.fork_probe"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def env(monkeypatch):
    monkeypatch.chdir(ROOT)
    ours = {PARENT_PID: str(os.getpid()), "COLOUR": "green"}
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", **ours}


@pytest.fixture
def make():
    made = []

    def make_spawner(*preload):
        made.append(ForkServerSpawner([PROBE], preload))
        return made[-1]

    yield make_spawner
    for each in made:
        each.close()


@pytest.fixture
def run(env, tmp_path):
    """Starts a probe and returns it with the path of its log."""
    logs = []

    def start(spawner, *argv, **variables):
        logs.append(tmp_path / f"{len(logs)}.log")
        return spawner.spawn(PROBE, argv, {**env, **variables}, logs[-1]), logs[-1]

    return start


def until(ready: Callable[[], object], timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline_s, "it did not come"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether it has ended; an orphan stays a zombie until init looks."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def says_something(log: Path) -> Callable[[], bool]:
    return lambda: log.exists() and bool(log.read_text())


def test_a_fork_is_like_a_process_started_from_nothing(make, run):
    warm = make()
    run(warm, "exit", "0")[0].wait()
    found = []
    for spawner in (warm, ExecSpawner()):
        # Not what the server was started with: they are replaced as a whole.
        child, log = run(spawner, "facts", "--index", "3", COLOUR="red", SHAPE="round")
        assert child.wait() == 0, log.read_text()
        found.append(json.loads(log.read_text().replace(str(log), "LOG")))
    assert isinstance(child, subprocess.Popen)
    forked_facts, plain_facts = found
    assert forked_facts == plain_facts
    assert forked_facts["environment"]["COLOUR"] == "red"
    assert forked_facts["leads_its_session"] and forked_facts["parent_is_told"]
    assert forked_facts["files"][:3] == ["0 /dev/null", "1 LOG", "2 LOG"]


def test_forks_share_what_was_imported_and_no_random_state(make, run):
    warm = make()
    drawn = []
    for _ in range(2):
        child, log = run(warm, "random")
        assert child.wait() == 0, log.read_text()
        assert child.pid != warm.server.pid
        drawn.append(json.loads(log.read_text()))
    assert [each[0] for each in drawn] == [warm.server.pid] * 2
    for one, other in zip(drawn[0][1:], drawn[1][1:], strict=True):
        assert one != other


def test_exit_codes_are_told_and_a_crash_hurts_nobody_else(make, run):
    warm = make()
    lives, _ = run(warm, "serve")
    first = warm.server
    children = {
        7: run(warm, "exit", "7"),
        1: run(warm, "raise"),
        -signal.SIGSEGV: run(warm, "crash"),
        -signal.SIGKILL: run(warm, "serve"),
    }
    children[-signal.SIGKILL][0].kill()
    for code, (child, _) in children.items():
        assert child.wait() == code
        assert child.poll() == child.returncode == code
        child.send_signal(signal.SIGTERM)  # to nobody
    assert "ValueError: on purpose" in children[1][1].read_text()
    assert lives.poll() is None
    again, _ = run(warm, "exit", "5")
    assert again.wait() == 5
    assert warm.server is first


def test_what_a_child_says_is_appended(make, run, env, tmp_path):
    log = tmp_path / "shared.log"
    log.write_text("before\n")
    child = make().spawn(PROBE, ["serve"], env, log)
    until(lambda: str(child.pid) in log.read_text())
    child.send_signal(signal.SIGTERM)
    assert child.wait() == 0
    assert log.read_text() == f"before\n{child.pid}\nSIGTERM\n"


def test_a_killed_server_takes_its_children_along_and_another_serves(make, run):
    warm = make()
    child, log = run(warm, "serve")
    until(says_something(log))
    killed = warm.server.pid
    os.kill(killed, signal.SIGKILL)
    assert child.wait() == EXIT_UNKNOWN
    assert f"the process that started this one ({killed}) is gone" in log.read_text()
    assert is_gone(child.pid)
    again, _ = run(warm, "exit", "3")
    assert isinstance(again, ForkedProcess)
    assert again.wait() == 3
    assert warm.server.pid != killed
    assert not psutil.pid_exists(killed)


def test_one_that_hangs_after_its_server_died_is_killed(make, run, monkeypatch):
    monkeypatch.setattr(forked, "ORPHANS_S", 0.5)
    warm = make()
    child, log = run(warm, "serve")
    until(says_something(log))
    child.send_signal(signal.SIGSTOP)
    os.kill(warm.server.pid, signal.SIGKILL)
    assert child.wait() == EXIT_UNKNOWN
    assert is_gone(child.pid)


def test_when_the_spawner_dies_so_do_server_and_children(env, tmp_path):
    program = (
        "import os, sys, time, pathlib\n"
        "from infra.control.spawning import ForkServerSpawner\n"
        f"spawner = ForkServerSpawner([{PROBE!r}])\n"
        "log = pathlib.Path(sys.argv[1])\n"
        f"child = spawner.spawn({PROBE!r}, ['serve'], dict(os.environ), log)\n"
        "print(spawner.server.pid, child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    log = tmp_path / "child.log"
    command = [sys.executable, "-c", program, str(log)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as agent:
        pids = list(map(int, agent.stdout.readline().split()))
        until(says_something(log))
        assert not any(map(is_gone, pids))
        agent.kill()
    until(lambda: all(map(is_gone, pids)))
    assert "is gone" in log.read_text()


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("tests.unit.starts_threads", "starts_threads started threads: there are 2"),
        ("no_such_module", "no_such_module cannot be imported: ModuleNotFoundError"),
    ],
)
def test_nothing_is_forked_after_an_import_that_does_not_bear_it(
    module, reason, make, run, caplog
):
    warm = make(module)
    for code in (3, 4):
        child, log = run(warm, "exit", str(code))
        assert isinstance(child, subprocess.Popen)
        assert child.wait() == code, log.read_text()
    (warning,) = caplog.messages  # the second time it is known
    assert warning.startswith(f"{PROBE} is started from nothing: ")
    assert reason in warning


def test_variables_that_only_a_start_can_set_are_not_ignored(make, run, caplog):
    warm = make()
    run(warm, "exit", "0")[0].wait()
    child, log = run(warm, "facts", PYTHONHASHSEED="7")
    assert isinstance(child, subprocess.Popen)
    assert child.wait() == 0
    assert json.loads(log.read_text())["environment"]["PYTHONHASHSEED"] == "7"
    assert "other variables" in caplog.text


def test_what_a_frozen_server_forks_too_late_does_not_live(make, run, monkeypatch):
    monkeypatch.setattr(forked, "ANSWER_S", 0.3)
    warm = make()
    run(warm, "exit", "0")[0].wait()
    server = psutil.Process(warm.server.pid)
    server.suspend()
    child, log = run(warm, "serve")
    assert isinstance(child, subprocess.Popen), "somebody has to do the work"
    server.resume()
    monkeypatch.undo()
    again, _ = run(warm, "exit", "6")
    assert again.wait() == 6
    until(lambda: server.children() == [])
    child.terminate()
    assert child.wait() in (0, -signal.SIGTERM)
