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

from infra.control import fork_client, forked, spawning
from infra.control.children import EXIT_NOT_STARTED, NotStarted, Pending
from infra.control.forked import EXIT_UNKNOWN, ForkedProcess
from infra.control.restarts import HEALTHY_AFTER_S
from infra.control.role import PARENT_PID
from infra.control.scheduler import FORKED, Assignment
from infra.control.spawning import ExecSpawner, ForkServerSpawner
from infra.control.supervisor import Supervisor
from infra.settings import Settings

PROBE = "tests.unit.fork_probe"
WAITS = "tests.unit.waits_at_import"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def env(monkeypatch):
    monkeypatch.chdir(ROOT)
    ours = {PARENT_PID: str(os.getpid()), "COLOUR": "green"}
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", **ours}


@pytest.fixture
def make():
    made = []

    def make_spawner(*preload, **options):
        made.append(ForkServerSpawner([PROBE], preload, **options))
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


def until(ready: Callable[[], object], timeout_s: float = 60.0) -> None:
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


@pytest.fixture
def hears_ctrl_c():
    """What is started in the background may have been told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_fork_is_like_a_process_started_from_nothing(make, run, hears_ctrl_c):
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


@pytest.mark.parametrize(
    ("patience_s", "expected"), [(60.0, -signal.SIGKILL), (0.2, EXIT_UNKNOWN)]
)
def test_how_one_ended_is_waited_for_though_its_server_is_frozen(
    patience_s, expected, make, run, monkeypatch
):
    monkeypatch.setattr(forked, "_UNTOLD_S", patience_s)
    warm = make()
    child, log = run(warm, "serve")
    until(says_something(log))
    os.kill(warm.server.pid, signal.SIGSTOP)
    child.kill()
    until(lambda: is_gone(child.pid))
    if expected == EXIT_UNKNOWN:
        assert child.wait() == EXIT_UNKNOWN
    else:
        assert child.poll() is None
    os.kill(warm.server.pid, signal.SIGCONT)
    assert child.wait() == expected


def test_when_the_spawner_dies_so_do_server_and_children(env, tmp_path):
    program = (
        "import os, sys, time, pathlib\n"
        "from infra.control.spawning import ForkServerSpawner\n"
        f"spawner = ForkServerSpawner([{PROBE!r}])\n"
        "log = pathlib.Path(sys.argv[1])\n"
        f"child = spawner.spawn({PROBE!r}, ['serve'], dict(os.environ), log)\n"
        "print(spawner.server.pid, child.pid, flush=True)\n"
        "time.sleep(600)\n"
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
    monkeypatch.setattr(fork_client, "ANSWER_S", 0.3)
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


@pytest.fixture
def gate(tmp_path, env):
    """The file that the import of WAITS waits for."""
    env["WAITS_FOR"] = str(tmp_path / "gate")
    return tmp_path / "gate"


def is_importing(server):
    return server.importing_for_s > 0 and server.importing == WAITS


def test_nobody_waits_for_a_module_that_hangs_at_import(make, run, gate):
    impatient = make(WAITS, is_patient=False)
    began_s = time.monotonic()
    children = [run(impatient, "exit", str(code))[0] for code in (3, 4)]
    looks = [child.poll() for child in children for _ in range(50)]
    assert time.monotonic() - began_s < 60.0, "it would wait for ever"
    assert set(looks) == {None} and [child.pid for child in children] == [-1, -1]
    until(lambda: is_importing(impatient.server))
    server = impatient.server
    gate.touch()
    assert [child.wait() for child in children] == [3, 4]
    assert all(isinstance(child.child, ForkedProcess) for child in children)
    assert impatient.server is server
    # With a server that is ready there is nothing to wait for.
    assert isinstance(run(impatient, "exit", "5")[0], ForkedProcess)


def test_a_start_that_took_too_long_says_which_module_hangs(
    make, run, gate, monkeypatch
):
    impatient = make(WAITS, is_patient=False)
    late, _ = run(impatient, "exit", "3")
    until(lambda: is_importing(impatient.server))
    monkeypatch.setattr(spawning, "START_S", 0.0)
    assert late.poll() == late.returncode == EXIT_NOT_STARTED
    assert f"module {WAITS} hangs at import" in late.reason
    late.kill()
    assert late.wait() == EXIT_NOT_STARTED, "what ended has ended"
    # What comes later waits for the same imports, which may only be slow.
    monkeypatch.undo()
    server = impatient.server
    again, _ = run(impatient, "exit", "4")
    gate.touch()
    assert again.wait() == 4 and impatient.server is server


def test_a_role_that_waits_for_imports_in_vain_fails_and_is_not_well():
    # Else it would be started again for ever, as one that fails once a day.
    assert spawning.START_S < HEALTHY_AFTER_S


def test_whoever_has_time_waits_and_is_told_in_the_end(make, run, gate, monkeypatch):
    monkeypatch.setattr(spawning, "PATIENT_START_S", 0.5)
    # On a busy machine Python alone takes longer than that to get to the import.
    real = fork_client.ForkServerProcess.importing_for_s.fget
    monkeypatch.setattr(
        fork_client.ForkServerProcess,
        "importing_for_s",
        property(lambda it: min(real(it), 60.0 if it.importing == WAITS else 0.1)),
    )
    patient = make(WAITS)
    for _ in range(2):
        failed, _ = run(patient, "exit", "3")
        assert isinstance(failed, NotStarted) and WAITS in failed.reason
    assert failed.poll() == EXIT_NOT_STARTED


def test_a_signal_before_the_start_ends_it(make, run, gate):
    impatient = make(WAITS, is_patient=False)
    children = [run(impatient, "serve")[0] for _ in range(3)]
    children[0].send_signal(signal.SIGTERM)
    children[1].kill()
    assert [child.poll() for child in children[:2]] == [-signal.SIGTERM, -9]
    gate.touch()
    until(lambda: children[2].poll() is None and children[2].pid > 0)
    pids = [child.pid for child in psutil.Process(impatient.server.pid).children()]
    assert pids == [children[2].pid]
    children[2].kill()
    assert children[2].wait() == -signal.SIGKILL


def test_one_that_was_asked_for_and_is_not_wanted_any_more_does_not_live(make, run):
    impatient = make(is_patient=False)
    first, _ = run(impatient, "exit", "0")
    assert first.wait() == 0
    server = psutil.Process(impatient.server.pid)
    server.suspend()
    child, _ = run(impatient, "serve")
    assert isinstance(child, Pending) and child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert child.poll() == -signal.SIGTERM
    server.resume()
    again, _ = run(impatient, "exit", "6")
    assert again.wait() == 6
    until(lambda: server.children() == [])


def test_why_nothing_can_be_forked_is_told_once_however_many_wait(make, run, caplog):
    impatient = make("tests.unit.starts_threads", is_patient=False)
    children = [run(impatient, "exit", str(code))[0] for code in range(3, 7)]
    assert [child.wait() for child in children] == [3, 4, 5, 6]
    late, _ = run(impatient, "exit", "7")
    assert isinstance(late, subprocess.Popen) and late.wait() == 7
    (warning,) = [line for line in caplog.messages if "from nothing" in line]
    assert "starts_threads started threads" in warning


def test_a_server_that_dies_at_each_import_is_given_up(make, run, caplog):
    impatient = make("tests.unit.dies_at_import", is_patient=False)
    child, _ = run(impatient, "exit", "3")
    assert child.wait() == 3
    assert isinstance(child.child, subprocess.Popen)
    assert "the fork server ended with code -9" in caplog.text
    assert caplog.text.count("has died") == 2


def test_a_server_that_imports_for_ever_is_replaced_in_the_end(
    make, run, gate, monkeypatch
):
    impatient = make(WAITS, is_patient=False)
    child, _ = run(impatient, "exit", "3")
    first = impatient.server
    until(lambda: is_importing(first))
    monkeypatch.setattr(spawning, "HOPELESS_S", 0.0)
    assert child.poll() is None and impatient.server is not first
    assert not psutil.pid_exists(first.pid)
    monkeypatch.undo()
    gate.touch()
    assert child.wait() == 3


def test_a_supervisor_goes_on_meanwhile_and_hears_why_in_the_end(
    tmp_path, gate, monkeypatch
):
    monkeypatch.setenv("WAITS_FOR", str(gate))
    spawner = ForkServerSpawner(FORKED, (WAITS,), is_patient=False)
    supervisor = Supervisor(Settings(), "exp", tmp_path / "logs", spawner)
    worker = Assignment("worker", 0)
    try:
        supervisor.start([worker])
        assert supervisor.poll() == []
        view = supervisor.views()[worker]
        assert (view.state, view.pid) == ("starting", -1)
        until(lambda: is_importing(spawner.server))
        monkeypatch.setattr(spawning, "START_S", 0.0)
        (gone,) = supervisor.poll()
        assert gone.code == EXIT_NOT_STARTED
        assert f"module {WAITS} hangs at import" in gone.last_line
    finally:
        supervisor.stop(0.5)
        spawner.close()
