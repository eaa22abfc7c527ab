"""dm-reverb's prioritised table, filled, sampled and updated: ``script JOB FOUND``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import reverb
import tensorflow as tf

from benchmarks.beside.scripts import replay_work
from benchmarks.beside.scripts.job import do_job, found
from benchmarks.beside.scripts.replay_work import ALPHA, Array

_TABLE = "rows"
_COLUMNS = ("observation", "action", "return", "discount", "bootstrap_observation")
_FLUSH_ROWS = 512


def work(job: dict[str, Any]) -> dict[str, float]:
    """Return the figures."""
    server = reverb.Server([_table(job["rows"])])
    client = reverb.Client(f"localhost:{server.port}")
    priorities = replay_work.new_priorities(job["batch"]).astype(float).tolist()
    samples: list[Iterator[Any]] = []

    def insert(chunk: Mapping[str, Array]) -> None:
        with client.trajectory_writer(1) as writer:
            for row in range(len(chunk["action"])):
                writer.append({name: chunk[name][row] for name in _COLUMNS})
                item = {name: writer.history[name][-1:] for name in _COLUMNS}
                writer.create_item(_TABLE, float(chunk["priority"][row]), item)
                if row % _FLUSH_ROWS == 0:
                    writer.flush(_FLUSH_ROWS)

    def cycle() -> None:
        if not samples:  # it samples ahead, so not before there is all
            samples.append(_samples(client.server_address, job["batch"]))
        keys = next(samples[0]).info.key
        updates = dict(zip(keys.tolist(), priorities, strict=True))
        client.mutate_priorities(_TABLE, updates)

    return replay_work.measure(job["rows"], job["batch"], job["seconds"], insert, cycle)


def _table(rows: int) -> reverb.Table:
    return reverb.Table(
        _TABLE,
        sampler=reverb.selectors.Prioritized(ALPHA),
        remover=reverb.selectors.Fifo(),
        max_size=rows,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature={
            "observation": tf.TensorSpec((1, 4), tf.float32),
            "action": tf.TensorSpec((1,), tf.int64),
            "return": tf.TensorSpec((1,), tf.float32),
            "discount": tf.TensorSpec((1,), tf.float32),
            "bootstrap_observation": tf.TensorSpec((1, 4), tf.float32),
        },
    )


def _samples(address: str, batch: int) -> Iterator[Any]:
    rows = reverb.TrajectoryDataset.from_table_signature(
        server_address=address,
        table=_TABLE,
        # With these it was fastest, here on two cores.
        num_workers_per_iterator=2,
        max_in_flight_samples_per_worker=64,
    )
    return iter(rows.batch(batch, drop_remainder=True).prefetch(1).as_numpy_iterator())


if __name__ == "__main__":
    do_job(lambda job: found(work(job), "dm-reverb", "tensorflow", "numpy"))
