"""cpprb's prioritised buffer, filled, sampled and updated: ``script JOB FOUND``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cpprb import PrioritizedReplayBuffer

from benchmarks.beside.scripts import replay_work
from benchmarks.beside.scripts.job import do_job, found
from benchmarks.beside.scripts.replay_work import ALPHA, BETA, Array


def work(job: dict[str, Any]) -> dict[str, float]:
    """Return the figures."""
    rows, batch = job["rows"], job["batch"]
    fields: dict[str, dict[str, Any]] = {
        "observation": {"shape": 4},
        "action": {"dtype": "int64"},
        "return": {},
        "discount": {},
        "bootstrap_observation": {"shape": 4},
    }
    buffer = PrioritizedReplayBuffer(rows, fields, alpha=ALPHA)
    priorities = replay_work.new_priorities(batch)

    def insert(chunk: Mapping[str, Array]) -> None:
        columns = dict(chunk)
        buffer.add(priorities=columns.pop("priority"), **columns)

    def cycle() -> None:
        sample = buffer.sample(batch, beta=BETA)
        buffer.update_priorities(sample["indexes"], priorities)

    return replay_work.measure(rows, batch, job["seconds"], insert, cycle)


if __name__ == "__main__":
    do_job(lambda job: found(work(job), "cpprb", "numpy"))
