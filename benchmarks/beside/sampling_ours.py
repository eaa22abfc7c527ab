"""Our replay buffer, filled, sampled and updated: ``python -m ... JOB FOUND``."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.beside.scripts.job import do_job, found
from benchmarks.replay_buffer import ENV, STEPS, batches, sample_and_update, spec_of
from learner.replay_buffer import ReplayBuffer


def work(job: dict[str, Any]) -> dict[str, float]:
    """Return the figures: batches come as a learner has them, decoded."""
    rows = job["rows"]
    replay = spec_of(rows).learner.replay
    buffer = ReplayBuffer(ENV, replay, unroll_length=STEPS)
    insert_s, inserted = 0.0, 0
    for offset, batch in enumerate(batches(rows)):
        began_s = time.perf_counter()
        inserted += buffer.insert(batch, 0, offset)
        insert_s += time.perf_counter() - began_s
    return {
        "items_per_s": sample_and_update(buffer, job["seconds"]),
        "inserted_per_s": inserted / insert_s,
        "rows": buffer.rows,
    }


if __name__ == "__main__":
    do_job(lambda job: found(work(job), "rollstream", "numba", "numpy"))
