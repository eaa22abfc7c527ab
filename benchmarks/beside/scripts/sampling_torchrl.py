"""TorchRL's prioritised buffer, filled, sampled and updated: ``script JOB FOUND``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torchrl.data
from tensordict import TensorDict, torch

from benchmarks.beside.scripts import replay_work
from benchmarks.beside.scripts.job import do_job, found
from benchmarks.beside.scripts.replay_work import ALPHA, BETA, Array


def work(job: dict[str, Any]) -> dict[str, float]:
    """Return the figures."""
    torch.set_num_threads(1)
    rows, batch = job["rows"], job["batch"]
    buffer = torchrl.data.TensorDictPrioritizedReplayBuffer(
        alpha=ALPHA,
        beta=BETA,
        storage=torchrl.data.LazyTensorStorage(rows),
        batch_size=batch,
        priority_key="priority",
    )
    priorities = torch.from_numpy(replay_work.new_priorities(batch))

    def insert(chunk: Mapping[str, Array]) -> None:
        columns = {name: torch.from_numpy(values) for name, values in chunk.items()}
        buffer.extend(TensorDict(columns, [len(chunk["action"])]))

    def cycle() -> None:
        buffer.update_priority(buffer.sample()["index"], priorities)

    return replay_work.measure(rows, batch, job["seconds"], insert, cycle)


if __name__ == "__main__":
    do_job(lambda job: found(work(job), "torchrl", "tensordict", "torch", "numpy"))
