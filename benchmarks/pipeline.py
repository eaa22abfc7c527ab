"""``rollstream bench pipeline``: the whole path, with the production processes."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.learner_side import READY, WITHOUT_POLICY
from benchmarks.local import running
from benchmarks.meter import Meter, ProcessUse
from benchmarks.published import supervised
from benchmarks.side_process import side_process, wait_for
from infra.control.scheduler import Assignment
from infra.control.supervisor import Supervisor
from infra.errors import RollstreamError
from infra.monitoring.follow import MetricsFollower
from infra.settings import Settings
from schemas.experiment import Experiment, from_values

_START_S = 60.0
_SAMPLE_S = 0.25


@dataclass(frozen=True)
class Load:
    """What to measure; ``rate`` is env steps/s in all, 0: as fast as it goes.

    Without a policy workers act at random, and nothing is learnt how.
    """

    workers: int
    envs: int
    unroll: int
    n_step: int
    seconds: float
    rate: float
    flow: str
    partitions: int = 8
    env_id: str = "CartPole-v1"
    algorithm: str = "dqn"
    hidden: tuple[int, ...] = (64,)
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    encoding: str = "auto"
    has_policy: bool = True


def run_bench(
    settings: Settings, load: Load, console: Console, *, as_json: bool
) -> None:
    """Measure and print; with flow ``both``, free first and credit beside it."""
    flows = ["free", "credit"] if load.flow == "both" else [load.flow]
    with running(settings, console) as (cluster, there):
        found = {flow: measure(there, load, flow, cluster.pids()) for flow in flows}
    result: dict[str, Any] = {**found[flows[0]], "flow": flows[0]}
    if len(flows) > 1:
        result[flows[1]] = found[flows[1]]
    if as_json:
        print(json.dumps(result))
    else:
        for flow in flows:
            show(console, load, flow, found[flow])


def measure(
    settings: Settings,
    load: Load,
    flow: str,
    services: dict[str, int],
    observe: Callable[[dict[str, int]], None] = lambda pids: None,
) -> dict[str, Any]:
    """Run the processes once and return the figures.

    Args:
        settings: that point at the running cluster.
        load: what to measure.
        flow: ``free`` or ``credit``.
        services: pids of the cluster's processes, by name.
        observe: is given those of the roles, once all have started.
    """
    experiment = bench_experiment(load, flow)
    with ExitStack() as closing:
        supervisor, run = closing.enter_context(supervised(settings, experiment))
        more = [] if load.has_policy else [WITHOUT_POLICY]
        module, seconds = "benchmarks.learner_side", str(load.seconds)
        side = closing.enter_context(
            side_process(supervisor, module, experiment.name, seconds, *more)
        )
        supervisor.start([Assignment("processor", 0)])
        wait_for(side, READY)
        supervisor.start([Assignment("worker", i) for i in range(load.workers)])
        follower = MetricsFollower(settings, experiment.name, run.run_id)
        closing.callback(follower.close)
        pids = {a.key: pid for a, pid in supervisor.pids().items()}
        observe(pids)
        meter = Meter({**pids, "learner side": side.pid, **services})
        output = _wait(side, supervisor, follower, meter, load)
        began_s, ended_s = output["measured_s"]
        uses = meter.uses(began_s, ended_s, output["steps_per_s"])
        supervisor.stop()
        follower.read_to_end(2.0)
        return _figures(output, follower, meter, uses)


def bench_experiment(load: Load, flow: str) -> Experiment:
    """Return the experiment that is measured: CartPole, an MLP of 64 unless said."""
    rate = load.rate / load.workers
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": f"bench-{time.time_ns() // 1_000_000}"},
            "spec": {
                "env": {"id": load.env_id, "kwargs": dict(load.env_kwargs)},
                "workers": {
                    "replicas": load.workers,
                    "envsPerWorker": load.envs,
                    "unrollLength": load.unroll,
                    "maxEnvStepsPerS": rate,
                    "encoding": {"default": load.encoding},
                },
                "processor": {"nStep": load.n_step},
                "learner": {
                    "algorithm": load.algorithm,
                    "network": {"hidden": list(load.hidden), "activation": "tanh"},
                },
                "evaluator": {"replicas": 0},
                "flow": {"mode": flow},
                "topics": {"partitions": load.partitions, "diskBudget": "40GB"},
            },
        }
    )


def _wait(
    side: subprocess.Popen[str],
    supervisor: Supervisor,
    follower: MetricsFollower,
    meter: Meter,
    load: Load,
) -> dict[str, Any]:
    """Sample until the learner side has printed what it found."""
    deadline_s = time.monotonic() + _START_S + load.seconds
    while side.poll() is None:
        follower.poll(_SAMPLE_S)
        meter.sample()
        meter.note_workers(follower.progress)
        check_roles(supervisor)
        if time.monotonic() > deadline_s:
            raise RollstreamError(
                f"bench: expected an end within {_START_S + load.seconds:.0f} s"
            )
    lines = (side.stdout.read() if side.stdout else "").splitlines()
    if side.returncode != 0 or not lines:
        raise RollstreamError(f"bench: the learner side ended with {side.returncode}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _figures(
    output: dict[str, Any],
    follower: MetricsFollower,
    meter: Meter,
    uses: list[ProcessUse],
) -> dict[str, Any]:
    steps = follower.progress.total("worker", "env_steps")
    rows = steps + follower.progress.total("worker", "invalid_steps")
    size = follower.progress.total("worker", "bytes")
    return {
        "worker_steps_per_s": round(meter.worker_steps_per_s()),
        "learner_ready_steps_per_s": round(output["steps_per_s"]),
        "latency_ms": output["latency_ms"],
        # The rest are resets, one after each episode.
        "valid_share": round(steps / max(rows, 1), 4),
        "bytes_per_step": round(size / max(steps, 1), 1),
        "lost_steps": output["lost_steps"],
        "processes": [asdict(use) for use in uses],
    }


def check_roles(supervisor: Supervisor) -> None:
    """Raise RollstreamError when a role has ended: the figures would be wrong."""
    for gone in supervisor.poll():
        raise RollstreamError(
            f"bench: {gone.assignment.key} ended with {gone.code}: {gone.last_line}"
        )


def show(console: Console, load: Load, flow: str, found: dict[str, Any]) -> None:
    """Print the figures of one flow."""
    latency = found["latency_ms"]
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_row("flow", flow)
    table.add_row("load", f"{load.workers} x {load.envs} envs, T={load.unroll}")
    table.add_row("worker", f"{found['worker_steps_per_s']:,} steps/s")
    table.add_row("learner-ready", f"{found['learner_ready_steps_per_s']:,} steps/s")
    table.add_row(
        "latency",
        f"p50 {latency['p50']:.0f}, p95 {latency['p95']:.0f}, "
        f"p99 {latency['p99']:.0f} ms",
    )
    table.add_row("valid", f"{found['valid_share']:.1%} of the rows")
    table.add_row("bytes/step", f"{found['bytes_per_step']}")
    table.add_row("lost", f"{found['lost_steps']} steps")
    for use in found["processes"]:
        used = (
            f"{use['cpu_us_per_step']:.2f} us CPU/step, {use['cpu_share']:.2f} cores, "
            f"{use['peak_rss_mb']:.0f} MB"
        )
        table.add_row(use["role"], used)
    console.print(table)
