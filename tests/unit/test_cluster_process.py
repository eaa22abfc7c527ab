"""A child is known by its command line from the moment it is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.cluster import process


def test_a_child_is_ours_at_once(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import time; time.sleep(60)", str(tmp_path)]
    for _ in range(20):
        pid = process.spawn(argv, log_file=tmp_path / "log", environment=os.environ)
        found = process.is_ours(pid, argv[-1:])
        process.kill(pid, argv[-1:])
        assert found
        assert not process.is_ours(pid, argv[-1:])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_child_is_known_although_its_start_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    real = subprocess.Popen

    def interrupted(*args: object, **kwargs: object) -> object:
        child = real(*args, **kwargs)  # type: ignore[call-overload]
        os.kill(os.getpid(), number)
        return child

    def terminate(*_: object) -> None:
        raise KeyboardInterrupt

    argv = [sys.executable, "-c", "import time; time.sleep(60)", str(tmp_path)]
    before = signal.signal(number, terminate)
    try:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(subprocess, "Popen", interrupted)
            process.spawn(argv, log_file=tmp_path / "log", environment=os.environ)
        assert signal.getsignal(number) is terminate
    finally:
        signal.signal(number, before)
    pid = process.find_process(argv[-1:])
    assert pid is not None
    process.kill(pid, argv[-1:])
