"""``rollstream bench policies``: how policies of several sizes reach their workers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.local import running
from benchmarks.pipeline import check_roles
from benchmarks.policy_adoptions import Adoptions, Reached
from benchmarks.policy_side import READY
from benchmarks.published import supervised
from benchmarks.side_process import side_process, wait_for
from benchmarks.startup import percentiles
from infra.control.scheduler import Assignment
from infra.control.supervisor import Supervisor
from infra.errors import RollstreamError
from infra.settings import Settings
from schemas.experiment import Experiment, from_values
from schemas.sizes import POLICY_INLINE_BYTES


@dataclass(frozen=True)
class Size:
    """A network, and how often its workers look for another.

    Attributes:
        hidden: units of each of two hidden layers.
        steps_per_s: of each worker, one by one: acting leaves them time to adopt.
    """

    hidden: int
    steps_per_s: int


SIZES = {"10k": Size(96, 100), "1M": Size(990, 100), "20M": Size(4465, 20)}
"""By the number of parameters that they make, nearly."""

INTERVAL_S = 1.5
"""Between versions; above a second, as workers tell of the last one each second."""

_START_S = 120.0
_TELL_S = 2.5
_POLL_S = 0.1


@dataclass(frozen=True)
class Load:
    """What to measure.

    Attributes:
        sizes: keys of SIZES.
        workers: how many there are, one number after the other.
        precisions: of ``learner.policyPrecision``.
        versions: of each.
    """

    sizes: tuple[str, ...]
    workers: tuple[int, ...]
    precisions: tuple[str, ...]
    versions: int


def run_bench(
    settings: Settings, load: Load, console: Console, *, as_json: bool
) -> None:
    """Measure and print."""
    found = []
    with running(settings, console) as (_, there):
        for size in load.sizes:
            for precision in load.precisions:
                for workers in load.workers:
                    console.print(f"{size} parameters, {precision}, {workers} workers")
                    found.append(measure(there, size, precision, workers, load))
    if as_json:
        print(json.dumps({"policies": found}))
    else:
        show(console, found)


def measure(
    settings: Settings, size: str, precision: str, workers: int, load: Load
) -> dict[str, Any]:
    """Publish to real workers; return the figures."""
    experiment = bench_experiment(SIZES[size], precision, workers)
    with ExitStack() as closing:
        supervisor, _ = closing.enter_context(supervised(settings, experiment))
        told = (experiment.name, str(load.versions), str(INTERVAL_S))
        side = closing.enter_context(
            side_process(supervisor, "benchmarks.policy_side", *told)
        )
        wait_for(side, READY)
        adoptions = Adoptions(settings, experiment.name)
        closing.callback(adoptions.close)
        supervisor.start([Assignment("worker", i) for i in range(workers)])
        # The first version, with which the workers begin, is not counted.
        _follow(supervisor, adoptions, lambda: len(adoptions.workers) == workers)
        before = adoptions.begin()
        assert side.stdin is not None
        side.stdin.write("go\n")
        side.stdin.flush()
        _follow(supervisor, adoptions, lambda: side.poll() is not None)
        until_s = time.monotonic() + _TELL_S
        _follow(supervisor, adoptions, lambda: time.monotonic() > until_s)
        lines = (side.stdout.read() if side.stdout else "").splitlines()
        if side.returncode != 0 or not lines:
            raise RollstreamError(f"bench: publishing ended with {side.returncode}")
        published = json.loads(lines[-1])
        reached = adoptions.since(before)
        return _figures(size, precision, workers, published, reached)


def bench_experiment(size: Size, precision: str, workers: int) -> Experiment:
    """Return the experiment: workers whose unrolls are one step, at a moderate rate."""
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": f"bench-{time.time_ns() // 1_000_000}"},
            "spec": {
                "env": {"id": "CartPole-v1"},
                "workers": {
                    "replicas": workers,
                    "envsPerWorker": 1,
                    "unrollLength": 1,
                    "maxEnvStepsPerS": size.steps_per_s,
                },
                "learner": {
                    "network": {"hidden": [size.hidden] * 2},
                    "policyPrecision": precision,
                },
                "evaluator": {"replicas": 0},
                "flow": {"mode": "free"},
                "topics": {"partitions": 4, "diskBudget": "2GB"},
            },
        }
    )


def _follow(
    supervisor: Supervisor, adoptions: Adoptions, is_over: Callable[[], bool]
) -> None:
    deadline_s = time.monotonic() + _START_S
    while not is_over():
        adoptions.poll(_POLL_S)
        check_roles(supervisor)
        if time.monotonic() > deadline_s:
            raise RollstreamError(f"bench: expected an end within {_START_S:.0f} s")


def _figures(
    size: str, precision: str, workers: int, published: dict[str, Any], reached: Reached
) -> dict[str, Any]:
    versions = published["versions"]
    log_bytes = round(published["log_bytes"] / versions)
    is_inline = log_bytes <= POLICY_INLINE_BYTES + 1_000
    fetched = log_bytes * workers if is_inline else reached.fetched_bytes / versions
    return {
        "parameters": size,
        "precision": precision,
        "workers": workers,
        "versions": versions,
        "adopted": len(reached.adoptions_ms),
        "adoption_ms": percentiles(list(reached.adoptions_ms)),
        "learner_pause_ms": percentiles(published["pauses_ms"]),
        "log_bytes_per_version": log_bytes,
        "fetched_bytes_per_version": round(fetched),
    }


def show(console: Console, found: Sequence[dict[str, Any]]) -> None:
    """Print a row for each."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("parameters")
    table.add_column("precision")
    for name in (
        "workers", "adopted", "adoption p50/p99", "learner's pause p50/p99",
        "on the log", "fetched by the host",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for each in found:
        adoption, pause = each["adoption_ms"], each["learner_pause_ms"]
        table.add_row(
            each["parameters"],
            each["precision"],
            str(each["workers"]),
            f"{each['adopted']} of {each['versions'] * each['workers']}",
            f"{adoption['p50']:.0f} / {adoption['p99']:.0f} ms",
            f"{pause['p50']:.1f} / {pause['p99']:.1f} ms",
            f"{each['log_bytes_per_version'] / 1e6:.3g} MB",
            f"{each['fetched_bytes_per_version'] / 1e6:.3g} MB",
        )
    console.print(table)
