"""Faults at random for long: ``python -m tests.chaos.soak --minutes 60``.

Roles are killed, frozen and told to stop; the broker is killed and frozen. At the end,
or at Ctrl-C, the same checks as everywhere, the memory that each process has gained,
and a row in chaos.json.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from infra.cluster.local import LocalCluster
from infra.settings import Settings
from tests.chaos import report
from tests.chaos.checks import CHECKS, Finding, check_all
from tests.chaos.harness import Harness
from tests.chaos.memory import Growth, Memory

LOOK_S = 10.0
PAUSE_S = (5.0, 20.0)
FREEZE_S = (2.0, 15.0)
AWAY_S = (0.0, 5.0)
_SHOWN = 10

# Never killed, so that their memory can be followed.
SPARED = {("worker", 0), ("processor", 0)}
# A role that finds no broker for 30 s when it starts ends with this, and starts again.
_NO_BROKER = "check that the brokers answer"
_console = Console(width=None if sys.stdout.isatty() else 120)


class Soak:
    """Faults at random on one experiment."""

    def __init__(self, harness: Harness, cluster: LocalCluster, minutes: float) -> None:
        self._harness = harness
        self._cluster = cluster
        self._random = harness.random
        self._began_s = time.monotonic()
        self._end_s = self._began_s + 60.0 * minutes
        self.memory = Memory()
        self.count = 0
        self._looked_s = 0.0

    def run(self) -> None:
        """Go on until the time is over; Ctrl-C ends it early."""
        faults: list[Callable[[], str]] = [
            self._kill, self._kill, self._stop, self._freeze,
            self._kill_broker, self._freeze_broker,
        ]  # fmt: skip
        try:
            while time.monotonic() < self._end_s:
                self._wait(self._random.uniform(*PAUSE_S))
                what = self._random.choice(faults)()
                self.count += 1
                at_s = time.monotonic() - self._began_s
                steps = f"{self._harness.acked:,} steps acknowledged"
                _console.print(f"{at_s:7.1f} s  {what:34}  {steps}", highlight=False)
        except KeyboardInterrupt:
            _console.print("interrupted: what there is so far is checked")

    def _wait(self, duration_s: float) -> None:
        end_s = min(time.monotonic() + duration_s, self._end_s)
        while (now_s := time.monotonic()) < end_s:
            if now_s - self._looked_s >= LOOK_S:
                self._looked_s = now_s
                self._look()
            time.sleep(min(0.5, max(end_s - time.monotonic(), 0.0)))

    def _look(self) -> None:
        processes = {a.key: pid for a, pid in self._harness.pids().items()}
        self.memory.look(processes | self._cluster.pids())

    def _victim(self) -> tuple[str, int]:
        victims = [(a.role, a.index) for a in sorted(self._harness.pids())]
        # The learner's memory, too, is of interest once it has lived for long.
        late = time.monotonic() - self._began_s > (self._end_s - self._began_s) / 3
        spared = SPARED | ({("learner", 0)} if late else set())
        return self._random.choice([v for v in victims if v not in spared])

    def _kill(self) -> str:
        role, index = self._victim()
        self._harness.kill(role, index)
        return f"killed {role}/{index}"

    def _stop(self) -> str:
        role, index = self._victim()
        number = self._random.choice([signal.SIGTERM, signal.SIGINT])
        self._harness.terminate(role, index, number)
        return f"{number.name} to {role}/{index}"

    def _freeze(self) -> str:
        assignment = self._random.choice(sorted(self._harness.pids()))
        duration_s = self._random.uniform(*FREEZE_S)
        self._harness.freeze(assignment.role, assignment.index)
        try:
            self._wait(duration_s)
        finally:
            self._harness.thaw(assignment.role, assignment.index)
        return f"froze {assignment.key} for {duration_s:.0f} s"

    def _kill_broker(self) -> str:
        self._cluster.kill_broker()
        try:
            self._wait(self._random.uniform(*AWAY_S))
        finally:
            self._cluster.restart_broker()
        self._harness.injected("kill", "broker")
        return "killed the broker"

    def _freeze_broker(self) -> str:
        broker = self._cluster.pids()["kafka"]
        duration_s = self._random.uniform(*FREEZE_S)
        os.kill(broker, signal.SIGSTOP)
        try:
            self._wait(duration_s)
        finally:
            os.kill(broker, signal.SIGCONT)
        self._harness.injected("freeze", "broker")
        return f"froze the broker for {duration_s:.0f} s"


def main(argv: list[str] | None = None) -> int:
    """Run; 0: nothing was found."""
    args = _parse(argv)
    _console.print(f"seed {args.seed}: --seed repeats the choice of faults")
    with tempfile.TemporaryDirectory(prefix="rollstream-soak-") as name:
        directory = args.directory or Path(name)
        settings = Settings(
            bootstrap_servers=None, zookeeper=None, data_dir=directory / "data"
        )
        cluster = LocalCluster(settings)
        found = cluster.start()
        try:
            there = settings.at(found.bootstrap_servers, found.zookeeper)
            return _soak(there, cluster, directory, args)
        finally:
            cluster.stop()


def _soak(
    settings: Settings, cluster: LocalCluster, directory: Path, args: argparse.Namespace
) -> int:
    spec = {"workers": {"maxEnvStepsPerS": args.rate}}
    with Harness(settings, directory, spec=spec, seed=args.seed) as harness:
        harness.start()
        soak = Soak(harness, cluster, args.minutes)
        soak.run()
        evidence = harness.finish(timeout_s=180.0)
    findings = [f for f in check_all(evidence) if _NO_BROKER not in f.what]
    row = report.report_of(
        "soak",
        evidence,
        what=f"{args.minutes:g} min at random, seed {args.seed}",
        injected=soak.count,
        findings=len(findings),
        note=", ".join(str(growth) for growth in soak.memory.growth()),
    )
    _show(findings, soak.memory.growth())
    report.show([row], _console)
    target = Path(os.environ.get(report.VARIABLE) or ".")
    _console.print(f"written to {report.write([row], target)}")
    return 1 if findings else 0


def _show(findings: list[Finding], growths: list[Growth]) -> None:
    table = Table(title="memory of the longest life of each", title_justify="left")
    for column in ("process", "minutes", "MB at the end", "MB/h"):
        table.add_column(column, justify="left" if column == "process" else "right")
    for growth in growths:
        table.add_row(
            growth.name,
            f"{growth.minutes:.1f}",
            f"{growth.megabytes:.0f}",
            f"{growth.megabytes_per_hour:+.0f}",
        )
    _console.print(table)
    for name in CHECKS:
        mine = [finding for finding in findings if finding.check == name]
        _console.print(f"{name}: {len(mine)} findings" if mine else f"{name}: ok")
        for finding in mine[:_SHOWN]:
            _console.print(f"  {finding}", markup=False)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument(
        "--rate", type=float, default=60.0, help="steps a second of each of 4 workers"
    )
    parser.add_argument(
        "--directory", type=Path, help="where the logs are kept (default: nowhere)"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
