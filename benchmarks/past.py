"""``rollstream bench replay``: how fast a past is archived, and how small it gets."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from archive.archive_source import ArchiveSource
from archive.parts import use_one_thread
from archive.recorded import Source
from archive.topic_source import TopicSource
from benchmarks.local import running
from benchmarks.meter import Meter
from benchmarks.past_records import (
    ATARI,
    WORKERS,
    atari,
    cartpole,
    cartpole_description,
    template,
)
from benchmarks.past_replay import measure_replay
from benchmarks.published import bench_sender, published
from infra.control.role_environment import role_environment
from infra.errors import RollstreamError
from infra.settings import Settings
from schemas.codec import encode
from schemas.experiment import Experiment, from_values
from schemas.records import EnvDescription, Member, Unroll
from schemas.topics import MEMBERS, TRAJECTORIES, topic_name, worker_name

_SAMPLE_S = 0.02

Make = Callable[[Settings, Unroll, int], Iterator[Unroll]]


@dataclass(frozen=True)
class Kind:
    """Experience to measure with.

    Attributes:
        make: yields the unrolls of a worker, for so many rows of all.
        describe: what its workers found.
        rows: how many env steps.
    """

    make: Make
    describe: Callable[[Settings], EnvDescription]
    rows: int


KINDS = {
    "cartpole": Kind(cartpole, cartpole_description, 4_000_000),
    "atari": Kind(atari, lambda settings: ATARI, 100_000),
}


@dataclass(frozen=True)
class Recording:
    """A run that is in its topic of trajectories.

    Attributes:
        name: the experiment's.
        rows: of its records; a reset row is no step.
        env_steps: those that are valid.
        raw_bytes: of its arrays, opened.
        log_bytes: of its records.
    """

    name: str
    rows: int
    env_steps: int
    raw_bytes: int
    log_bytes: int


def run_bench(settings: Settings, console: Console, *, as_json: bool) -> None:
    """Measure each kind and print."""
    use_one_thread()
    with running(settings, console) as (_, there):
        found = {name: measure(there, name, kind) for name, kind in KINDS.items()}
    if as_json:
        print(json.dumps(found))
    else:
        show(console, found)


def measure(settings: Settings, name: str, kind: Kind) -> dict[str, Any]:
    """Record a past, then measure what can be done with it."""
    with ExitStack() as closing:
        recording = record(settings, name, kind, closing)
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        return {
            "steps": recording.rows,
            "raw_bytes_per_step": round(recording.raw_bytes / recording.rows, 1),
            "log_bytes_per_step": round(recording.log_bytes / recording.rows, 1),
            **measure_archive(settings, recording, folder / "archive"),
            **_replays(settings, recording, folder / "archive", closing),
        }


def record(settings: Settings, name: str, kind: Kind, closing: ExitStack) -> Recording:
    """Publish an experiment and send its trajectories, as its workers would."""
    experiment = _experiment(f"bench-{name}-{time.time_ns() // 1_000_000}")
    run_id = closing.enter_context(published(settings, experiment)).run_id
    sender = bench_sender(settings)
    members = topic_name(MEMBERS, experiment.name)
    topic = topic_name(TRAJECTORIES, experiment.name)
    rows = env_steps = raw_bytes = log_bytes = 0
    for worker in range(WORKERS):
        env = kind.describe(settings)
        member = Member(experiment.name, run_id, "worker", worker, "", 0, 0, env)
        sender.send(members, encode(member), f"worker/{worker}")
        first = template(experiment.name, run_id, worker)
        for unroll in kind.make(settings, first, kind.rows):
            value = encode(unroll)
            sender.send(topic, value, worker_name(worker), worker)
            rows += unroll.num_steps * unroll.num_envs
            env_steps += int(unroll.valid.array().sum())
            log_bytes += len(value)
            raw_bytes += _raw_bytes(unroll)
    sender.flush(60.0)
    return Recording(experiment.name, rows, env_steps, raw_bytes, log_bytes)


def measure_archive(
    settings: Settings, recording: Recording, folder: Path
) -> dict[str, Any]:
    """Archive it, from the topic to files that are durable, as a person does."""
    words = ["rollstream", "archive", recording.name, "--out", str(folder), "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        env=role_environment(settings),
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        meter = Meter({"archive": child.pid})
        began_s = time.monotonic()
        while child.poll() is None:
            meter.sample()
            time.sleep(_SAMPLE_S)
        output = child.stdout.read() if child.stdout else ""
    found = json.loads(output) if child.returncode == 0 else {"rows": 0}
    if found["rows"] != recording.rows:
        raise RollstreamError(
            f"bench: expected {recording.rows} archived rows, found {found['rows']}"
        )
    (used,) = meter.uses(began_s, time.monotonic(), found["rows_per_s"])
    return {
        "archive_steps_per_s": found["rows_per_s"],
        "archive_peak_rss_mb": used.peak_rss_mb,
        "bytes_per_step": found["bytes_per_row"],
    }


def _replays(
    settings: Settings, recording: Recording, folder: Path, closing: ExitStack
) -> dict[str, Any]:
    """Replay it from the topic, and from the archive."""
    sources: dict[str, Source] = {
        "replay": TopicSource(settings, recording.name),
        "replay_of_archive": ArchiveSource(folder),
    }
    found: dict[str, Any] = {}
    for what, source in sources.items():
        found |= measure_replay(settings, source, recording.env_steps, what, closing)
    return found


def show(console: Console, found: dict[str, dict[str, Any]]) -> None:
    """Print the figures of all kinds side by side."""
    table = Table("", *found, box=None)
    for name in next(iter(found.values())):
        table.add_row(
            name, *(f"{each[name]:,}" for each in found.values()), style="default"
        )
    console.print(table)


def _experiment(name: str) -> Experiment:
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": name},
            "spec": {
                "env": {"id": "CartPole-v1"},
                "topics": {"partitions": WORKERS, "diskBudget": "20GB"},
            },
        }
    )


def _raw_bytes(unroll: Unroll) -> int:
    maps = (unroll.observations, unroll.actions, unroll.behaviour)
    tensors = [tensor for each in maps for tensor in each.values()]
    tensors += [unroll.rewards, unroll.terminated, unroll.truncated, unroll.valid]
    return sum(tensor.array().nbytes for tensor in tensors)
