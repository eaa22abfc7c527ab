"""One task and seed through the whole pipeline: ``rollstream run``, as users run it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.children import ChildFailed, run_child
from benchmarks.learning.results import Outcome, Point
from benchmarks.learning.tasks import Side, Task
from benchmarks.published import bench_sender, delete_experiment_topics
from infra.control.experiments import forget_experiment, read_experiment
from infra.monitoring.follow import MetricsFollower
from infra.monitoring.progress import Progress
from infra.settings import Settings

# The target was reached or none was set; a limit came first.
_ENDED = (0, 3)
_VERSIONS = ("rollstream", "torch", "gymnasium", "numpy", "onnxruntime")


@dataclass(frozen=True)
class Told:
    """What a run has told.

    Attributes:
        began_ms: when it was launched, by this machine's clock.
        ended_ms: when its process had ended, likewise.
        summary: its last words.
        progress: its metrics, folded.
        first_step_ms: when the first environment had been stepped; None: not known.
    """

    began_ms: int
    ended_ms: int
    summary: dict[str, Any]
    progress: Progress
    first_step_ms: int | None


def learn(
    settings: Settings,
    task: Task,
    side: Side,
    seed: int,
    logs: Path,
    show: Callable[[str], None],
) -> Outcome:
    """Run one seed on the cluster that the settings point at; leave nothing behind.

    Raises:
        ChildFailed: it failed, or nothing was learnt.
    """
    name = f"bench-{task.name}-{uuid.uuid4().hex[:6]}"
    changes = [f"spec.seed={seed}", *side.changes]
    if side.stop:
        changes.append(f"spec.stop={side.stop}")
    elif side.env_steps is not None:
        changes.append(f"spec.stop.envSteps={side.env_steps}")
    try:
        told = _run(settings, task, side, name, changes, logs, show)
    finally:
        _forget(settings, name)
    if told.progress.env_steps == 0:
        raise ChildFailed(
            f"{name}: expected env steps, found none within "
            f"{told.summary['wall_s']:.0f} s",
            "the machine is too busy to be measured",
        )
    return outcome(task.name, side, seed, changes, told)


def _run(
    settings: Settings,
    task: Task,
    side: Side,
    name: str,
    changes: Sequence[str],
    logs: Path,
    show: Callable[[str], None],
) -> Told:
    command = [
        sys.executable, "-m", "rollstream", "run", str(task.file(side)), "--json",
        "--set", f"metadata.name={name}",
    ]  # fmt: skip
    for change in changes:
        command += ["--set", change]
    for module in task.modules:
        command += ["--env-module", module]
    began_ms = time.time_ns() // 1_000_000
    environment = {**os.environ, **endpoints(settings)}
    output = run_child(command, environment, logs / f"{name}.log", show, _ENDED)
    ended_ms = time.time_ns() // 1_000_000
    follower = MetricsFollower(settings, name, read_experiment(settings, name).run_id)
    try:
        follower.read_to_end()
        first = first_step_ms(follower.progress)
        summary = json.loads(output)
        return Told(began_ms, ended_ms, summary, follower.progress, first)
    finally:
        follower.close()


def endpoints(settings: Settings) -> dict[str, str]:
    """Return the variables by which a child finds the cluster that runs."""
    return {
        "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers or "",
        "ROLLSTREAM_ZOOKEEPER": settings.zookeeper or "",
        "ROLLSTREAM_DATA_DIR": str(settings.data_dir),
        "ROLLSTREAM_CACHE_DIR": str(settings.cache_dir),
    }


def _forget(settings: Settings, name: str) -> None:
    forget_experiment(bench_sender(settings), name)
    delete_experiment_topics(settings, name)
    shutil.rmtree(settings.data_dir / "experiments" / name, ignore_errors=True)


def first_step_ms(progress: Progress) -> int | None:
    """Return when the learner first told of a step that it had taken in."""
    told = [at_ms for at_ms, steps in sorted(progress.step_times) if steps > 0]
    return told[0] if told else None


def outcome(
    task: str, side: Side, seed: int, changes: Sequence[str], told: Told
) -> Outcome:
    """Fold what a run has told into what is kept of it."""
    progress, summary = told.progress, told.summary
    reached = None if side.stop else bool(summary["reached"])
    start_s = None
    if told.first_step_ms is not None:
        start_s = (told.first_step_ms - told.began_ms) / 1000
    return Outcome(
        task=task,
        side=side.name,
        seed=seed,
        reached=reached,
        env_steps=_env_steps(told, reached=bool(reached)),
        updates=int(summary["updates"]),
        wall_s=_wall_s(told, reached=bool(reached)),
        start_s=start_s,
        final_return=summary["eval_return_mean"],
        steps_per_s=rate_of_second_half(list(progress.step_times)),
        curve=curve_of(progress, told.began_ms),
        versions={name: importlib.metadata.version(name) for name in _VERSIONS},
        settings={"set": list(changes)},
        extra={
            "lost_steps": float(summary["lost_steps"]),
            "duplicate_steps": float(summary["duplicate_steps"]),
            "updates_per_s": updates_per_s(summary, progress),
            "bytes_per_step": progress.total("worker", "bytes")
            / max(progress.total("worker", "env_steps"), 1),
        },
    )


def _env_steps(told: Told, *, reached: bool) -> int:
    """Return the steps that the version which passed was learnt from, or all."""
    evaluated = [record for _, record in told.progress.evaluations]
    passed = [record.train_step for record in evaluated if record.confirmation]
    if reached and passed:
        return round(told.progress.env_steps_after(passed[-1:])[0])
    return int(told.summary["env_steps"])


def _wall_s(told: Told, *, reached: bool) -> float:
    """Return the seconds to the evaluation that passed, or to the end."""
    evaluated = [point.at_ms for point, _ in told.progress.evaluations]
    if reached and evaluated:
        return (max(evaluated) - told.began_ms) / 1000
    return (told.ended_ms - told.began_ms) / 1000


def curve_of(progress: Progress, began_ms: int) -> tuple[Point, ...]:
    """Return the greedy evaluations, over steps and seconds.

    Steps are those that the version was learnt from; it may have gone on for many more
    until its episodes were over. Seconds are until then.
    """
    versions = [record.train_step for _, record in progress.evaluations]
    steps = progress.env_steps_after(versions)
    return tuple(
        Point(
            env_steps=round(at),
            wall_s=(point.at_ms - began_ms) / 1000,
            mean_return=round(point.mean_return, 3),
            episodes=int(evaluation.returns.shape[0]),
        )
        for at, (point, evaluation) in zip(steps, progress.evaluations, strict=True)
    )


def updates_per_s(summary: dict[str, Any], progress: Progress) -> float:
    """Return the updates a second, from the first steps to the end."""
    times = sorted(at_ms for at_ms, steps in progress.step_times if steps > 0)
    if len(times) < 2:
        return 0.0
    return round(float(summary["updates"]) / ((times[-1] - times[0]) / 1000), 1)


def rate_of_second_half(step_times: Sequence[tuple[int, int]]) -> float:
    """Return the steps a second of the later half of the time, from [ms, steps]."""
    told = sorted(point for point in step_times if point[1] > 0)
    if len(told) < 2:
        return 0.0
    middle_ms = (told[0][0] + told[-1][0]) / 2
    half = [point for point in told if point[0] >= middle_ms]
    (began_ms, first), (ended_ms, last) = half[0], half[-1]
    return round((last - first) / max(ended_ms - began_ms, 1) * 1000, 1)
