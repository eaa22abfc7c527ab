"""Commands that are run as a person runs them, and agents."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollstream.cli import main
from tests.integration.agent_rig import Fleet
from tests.slow_learner import MODULE, ORDER

ROOT = Path(__file__).parents[2]


@pytest.fixture
def command(tmp_path):
    """Start commands that write to files; end what still runs."""
    with contextlib.ExitStack() as started:

        def start(*arguments, **environment):
            out = tmp_path / f"out-{time.monotonic_ns()}"
            error = out.with_suffix(".err")
            with out.open("wb") as stdout, error.open("wb") as stderr:
                process = subprocess.Popen(
                    [sys.executable, "-m", "rollstream.cli", *arguments],
                    stdout=stdout,
                    stderr=stderr,
                    env={**os.environ, **environment},
                    cwd=ROOT,
                )
            started.callback(process.wait)
            started.callback(process.kill)
            return process, out, error

        yield start


@pytest.fixture
def rollstream(monkeypatch, capsys):
    """Run a command that ends by itself, here; return its code and what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["rollstream", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def shown(rollstream):
    """Run a command with --json that has to succeed; return its lines."""

    def run(*arguments):
        code, out, error = rollstream(*arguments, "--json")
        assert code == 0, error
        return [json.loads(line) for line in out.splitlines()]

    return run


@pytest.fixture
def fleet(settings, tmp_path):
    """Agents that the test starts; all are ended, and what they ran is forgotten."""
    with contextlib.closing(Fleet(settings, tmp_path)) as found:
        yield found


@pytest.fixture
def slowness(tmp_path, monkeypatch):
    """The file that says how slow learners are from now on."""
    order = tmp_path / "slow"
    monkeypatch.setenv(ORDER, str(order))
    monkeypatch.setenv("ROLLSTREAM_LEARNER_MODULES", MODULE)
    return order
