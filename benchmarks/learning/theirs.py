"""One task and seed by another library, in a process of its own environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.children import ChildFailed, run_child
from benchmarks.learning.peer_settings import peer_job, rllib_job
from benchmarks.learning.results import Outcome, Point
from benchmarks.learning.tasks import RLLIB, Side, Task
from benchmarks.learning.zoo import tuned
from benchmarks.peers import PEERS, environment, python_of
from infra.settings import Settings
from schemas.experiment import Experiment, from_values
from schemas.spec_text import load_yaml


def learn(
    settings: Settings,
    task: Task,
    side: Side,
    seed: int,
    logs: Path,
    show: Callable[[str], None],
) -> Outcome:
    """Let a peer learn one seed; its environment is made at first use.

    Raises:
        PeerUnavailable, ChildFailed: say why there is no outcome.
    """
    peer = PEERS[side.peer]
    python = python_of(peer, settings.cache_dir, show)
    experiment = from_values(load_yaml(task.file(side).read_text()))
    job = job_of(experiment, task.name, side, seed)
    stem = logs / f"{task.name}-{side.name}-{seed}"
    job_file, found_file = stem.with_suffix(".job"), stem.with_suffix(".found")
    job_file.write_text(json.dumps(job))
    command = [str(python), str(peer.script), str(job_file), str(found_file)]
    run_child(command, environment(), stem.with_suffix(".log"), show)
    found = json.loads(found_file.read_text())
    if not found["env_steps"]:
        raise ChildFailed(
            f"{side.name}: expected env steps, found none in {found['wall_s']:.0f} s",
            "the machine is too busy to be measured",
        )
    return outcome(task.name, side.name, job, found)


def job_of(experiment: Experiment, task: str, side: Side, seed: int) -> dict[str, Any]:
    """Return what a side is told."""
    if side.peer == RLLIB:
        return rllib_job(experiment, seed, side.seconds)
    limit = side.env_steps or experiment.spec.stop.env_steps or 1_000_000
    job = peer_job(experiment, side.algorithm, seed, limit, side.evaluations)
    if side.is_tuned:
        job = tuned(job, task, side.evaluations)
    if side.stop:
        job["target"] = None
    if side.is_timed:
        job |= {"evaluate_every": limit + 1, "seconds": side.seconds}
    return job


def outcome(
    task: str, side: str, job: dict[str, Any], found: dict[str, Any]
) -> Outcome:
    """Return a peer's figures as an outcome."""
    return Outcome(
        task=task,
        side=side,
        seed=int(job["seed"]),
        reached=None if job.get("target") is None else bool(found["reached"]),
        env_steps=int(found["env_steps"]),
        updates=found.get("updates"),
        wall_s=float(found["wall_s"]),
        start_s=found.get("start_s"),
        final_return=found.get("final_return"),
        steps_per_s=float(found["steps_per_s"]),
        curve=tuple(Point(**point) for point in found.get("curve", ())),
        versions=found["versions"],
        settings=job,
        extra=found.get("extra", {}),
    )
