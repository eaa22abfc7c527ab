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


def run_python(tmp_path: Path, code: str, timeout_s: float = 60.0) -> int | None:
    argv = [sys.executable, "-c", code, str(tmp_path)]
    return process.run(
        argv,
        tail=argv[-1:],
        log_file=tmp_path / "log",
        environment=os.environ,
        timeout_s=timeout_s,
    )


def test_a_program_is_run_to_its_end(tmp_path: Path) -> None:
    assert run_python(tmp_path, "print('said'); raise SystemExit(3)") == 3
    assert (tmp_path / "log").read_text() == "said\n"


def test_a_program_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    assert run_python(tmp_path, "import time; time.sleep(60)", 0.1) is None
    assert process.find_process([str(tmp_path)]) is None


@pytest.mark.parametrize("moment", ["starts", "runs"])
def test_a_program_has_gone_when_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    begun: list[subprocess.Popen[bytes]] = []
    # A shell that starts something in the background has it ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[call-overload]
            begun.append(self)
            if moment == "starts":
                signal.raise_signal(signal.SIGINT)

        def wait(self, timeout: float | None = None) -> int:
            if moment == "runs":
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_python(tmp_path, "import time; time.sleep(60)")
    finally:
        signal.signal(signal.SIGINT, before)
    assert [child.returncode for child in begun] == [-signal.SIGKILL]
