"""``rollstream bench startup``: how soon workers and environments are at work."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from benchmarks.local import running
from benchmarks.pipeline import Load, bench_experiment, check_roles
from benchmarks.published import published
from infra.control.scheduler import FORKED, Assignment
from infra.control.spawning import ExecSpawner, ForkServerSpawner, Spawner
from infra.control.supervisor import Supervisor
from infra.errors import RollstreamError
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import end_offsets
from infra.settings import Settings
from producers.environments import make_environments
from producers.seeding import StreamSeeds
from producers.watchdog import Watchdog
from schemas.experiment import EnvSpec
from schemas.topics import TRAJECTORIES, topic_name

FIRST_RECORD_S = 60.0
ENV_REPEATS = 300
_TOGETHER = 4
_PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Started:
    """How some workers started.

    Attributes:
        first_record_ms: of each, from the request until its first record was there.
        memory_mb: of each, when several live: ``rss`` what is resident, ``uss`` what no
            other process has, ``pss`` that and its share of what others have too.
        server_pss_mb: of what they were forked from.
    """

    first_record_ms: list[float]
    memory_mb: dict[str, float]
    server_pss_mb: float


def run_bench(
    settings: Settings, workers: int, envs: int, console: Console, *, as_json: bool
) -> None:
    """Measure and print."""
    with running(settings, console) as (_, there):
        found = measure(there, workers, envs)
    if as_json:
        print(json.dumps(found))
    else:
        show(console, found)


def measure(settings: Settings, workers: int, envs: int) -> dict[str, Any]:
    """Start workers one after another, both ways, then environments."""
    with _experiment(settings, envs) as (name, logs):
        server = ForkServerSpawner(FORKED, settings.env_modules)
        ways: dict[str, Spawner] = {"warm": server, "exec": ExecSpawner()}
        found = {
            way: _start_workers(settings, name, logs, spawner, workers)
            for way, spawner in ways.items()
        }
        server.close()
    warm, cold = found["warm"], found["exec"]
    return {
        "worker_first_record_ms": percentiles(warm.first_record_ms),
        "worker_first_record_exec_ms": percentiles(cold.first_record_ms),
        "env_ready_ms": percentiles(env_ready_ms(settings, "vector_entry_point")),
        "env_ready_sync_ms": percentiles(env_ready_ms(settings, "sync")),
        "worker_mb": {way: each.memory_mb for way, each in found.items()},
        "fork_server_pss_mb": warm.server_pss_mb,
        "workers": workers,
        "envs": envs,
    }


def percentiles(values: list[float]) -> dict[str, float]:
    """Return p50, p95 and p99."""
    found = np.percentile(values, _PERCENTILES).tolist()
    return {
        f"p{p}": round(value, 1) for p, value in zip(_PERCENTILES, found, strict=True)
    }


@contextmanager
def _experiment(settings: Settings, envs: int) -> Iterator[tuple[str, Path]]:
    """An experiment without processes: its name, and where logs go."""
    load = Load(1, envs, unroll=32, n_step=3, seconds=0.0, rate=0.0, flow="credit")
    experiment = bench_experiment(load, "credit")
    with published(settings, experiment), tempfile.TemporaryDirectory() as logs:
        yield experiment.name, Path(logs)


def _start_workers(
    settings: Settings, name: str, logs: Path, spawner: Spawner, count: int
) -> Started:
    """Start one worker ``count`` times, then several to see what memory they take."""
    supervisor = Supervisor(settings, name, logs, spawner)
    spawner.warm(supervisor.environment())
    consumer = make_consumer(
        settings, group=None, client_id="bench", traffic=Traffic.CONTROL
    )
    try:
        _first_record_ms(supervisor, consumer, name)  # waits for the server's imports
        took_ms = [_first_record_ms(supervisor, consumer, name) for _ in range(count)]
        return _weigh(supervisor, consumer, name, spawner, took_ms)
    finally:
        supervisor.stop()
        consumer.close()


def _first_record_ms(supervisor: Supervisor, consumer: Consumer, name: str) -> float:
    """Start worker 0 and stop it; return how long its first record took."""
    _follow(consumer, name)
    began_s = time.monotonic()
    supervisor.start([Assignment("worker", 0)])
    _wait_for_records(supervisor, consumer, 1)
    took_ms = (time.monotonic() - began_s) * 1000
    supervisor.stop()
    return took_ms


def _follow(consumer: Consumer, name: str) -> None:
    """Read what comes to the trajectories from now on."""
    topic = topic_name(TRAJECTORIES, name)
    ends = end_offsets(consumer, topic)
    consumer.assign([TopicPartition(topic, p, offset) for p, offset in ends.items()])
    consumer.poll(0.2)  # the first fetch is under way before the clock runs


def _wait_for_records(supervisor: Supervisor, consumer: Consumer, workers: int) -> None:
    """Wait until each of so many workers has a record on the topic."""
    deadline_s = time.monotonic() + FIRST_RECORD_S
    seen: set[bytes | None] = set()
    while len(seen) < workers:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            seen.add(message.key())
        check_roles(supervisor)
        if time.monotonic() > deadline_s:
            raise RollstreamError(
                f"bench: expected a record of {workers} workers within "
                f"{FIRST_RECORD_S:.0f} s, found {len(seen)}"
            )


def _weigh(
    supervisor: Supervisor,
    consumer: Consumer,
    name: str,
    spawner: Spawner,
    took_ms: list[float],
) -> Started:
    """Let several workers live, and see what each takes."""
    _follow(consumer, name)
    supervisor.start([Assignment("worker", i) for i in range(_TOGETHER)])
    _wait_for_records(supervisor, consumer, _TOGETHER)
    used = [
        psutil.Process(pid).memory_full_info() for pid in supervisor.pids().values()
    ]
    server = spawner.server if isinstance(spawner, ForkServerSpawner) else None
    server_pss = psutil.Process(server.pid).memory_full_info().pss if server else 0
    kinds = ("rss", "pss", "uss")
    memory = {kind: _mean_mb([getattr(each, kind) for each in used]) for kind in kinds}
    return Started(took_ms, memory, server_pss_mb=_mean_mb([server_pss]))


def _mean_mb(sizes: list[int]) -> float:
    return round(sum(sizes) / len(sizes) / 2**20, 1)


def env_ready_ms(settings: Settings, vectorization: str) -> list[float]:
    """Make one CartPole again and again; return the times to its first step's end."""
    spec = EnvSpec.model_validate({"id": "CartPole-v1", "vectorization": vectorization})
    watchdog = Watchdog(spec.step_timeout_s)
    try:
        return [_env_ready_ms(spec, settings, watchdog, i) for i in range(ENV_REPEATS)]
    finally:
        watchdog.close()


def _env_ready_ms(
    spec: EnvSpec, settings: Settings, watchdog: Watchdog, repeat: int
) -> float:
    began_s = time.perf_counter()
    environments = make_environments(spec, 1, settings, watchdog)
    environments.reset(StreamSeeds(0, 0, repeat))
    environments.step({"": np.zeros(1, np.int64)})
    took_ms = (time.perf_counter() - began_s) * 1000
    environments.close()
    return took_ms


def show(console: Console, found: dict[str, Any]) -> None:
    """Print the figures."""
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, label in (
        ("worker_first_record_ms", "first record, warm"),
        ("worker_first_record_exec_ms", "first record, from nothing"),
        ("env_ready_ms", "environment, vector entry"),
        ("env_ready_sync_ms", "environment, sync"),
    ):
        p50, p95, p99 = (found[name][f"p{p}"] for p in _PERCENTILES)
        table.add_row(label, f"p50 {p50:,}, p95 {p95:,}, p99 {p99:,} ms")
    for way, used in found["worker_mb"].items():
        sizes = ", ".join(f"{kind.upper()} {mb}" for kind, mb in used.items())
        table.add_row(f"a worker, {way}", f"{sizes} MB")
    table.add_row("fork server", f"PSS {found['fork_server_pss_mb']} MB")
    console.print(table)
