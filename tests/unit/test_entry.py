"""The command's first steps and its last: Ctrl-C is silent, no thread waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORTS_FOR_EVER = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "rollstream.cli":
            print("importing", flush=True)
            while True:
                try:
                    time.sleep(60)
                except {swallowed}:
                    pass
sys.meta_path.insert(0, Slow())
from rollstream.__main__ import main
main()
"""
THREADED = """
import threading
import gymnasium
class Threaded(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (4,))
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self):
        threading.Thread(target=threading.Event().wait, name="simulator").start()
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}
    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}
gymnasium.register("Threaded-v0", Threaded)
"""


INTERRUPTED = """
from multiprocessing.context import ForkServerProcess
from rollstream.__main__ import main
def start(self):
    raise KeyboardInterrupt
ForkServerProcess.start = start
if __name__ == "__main__":
    main()
"""
IN_AN_EXEC = """
import sys
from rollstream import cli
from rollstream.__main__ import main
def interrupted():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        sys.exit(130)
cli.main = interrupted
main()
"""


def start(*arguments, **more):
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, **more,
    )  # fmt: skip


# Some libraries catch all, destructors drop all: no exception will do.
@pytest.mark.parametrize("swallowed", ["ImportError", "BaseException"])
def test_ctrl_c_while_python_imports_leaves_no_traceback(swallowed):
    process = start("-c", IMPORTS_FOR_EVER.format(swallowed=swallowed))
    try:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=120) == ("", "")
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130


def test_the_package_can_be_run():
    process = start("-m", "rollstream", "--help")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "") and "launch" in out


def test_the_command_begins_there():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert listed["project"]["scripts"] == {"rollstream": "rollstream.__main__:main"}


def test_ctrl_c_while_an_environment_of_its_own_process_starts():
    process = start(
        "-c", INTERRUPTED, "validate", "infra/experiments/cartpole-dqn.yaml",
        "--set", "spec.env.vectorization=async",
    )  # fmt: skip
    assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == 130


def test_ctrl_c_in_the_midst_of_an_exec_is_told_by_the_exit_code(tmp_path):
    (tmp_path / "interrupted.py").write_text(IN_AN_EXEC)
    process = start(
        "-m", "interrupted", env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == 130


def test_a_thread_that_an_environment_leaves_is_not_waited_for(tmp_path):
    (tmp_path / "threaded_env.py").write_text(THREADED)
    process = start(
        "-m", "rollstream", "validate", "infra/experiments/cartpole-dqn.yaml",
        "--set", "spec.env.id=Threaded-v0", "--env-module", "threaded_env",
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=120)  # or it waits for ever
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "cartpole-dqn: fine\n")
    assert err == "rollstream: not waited for: thread simulator\n"
