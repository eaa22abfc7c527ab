"""Experience through a dm-reverb server; runs in the peer's virtual environment.

``python ingest_reverb.py JOB FOUND``: both JSON files. The job's ``items`` says what an
item of the table is: ``chunks``, an unroll of all environments; ``sequences``, an
unroll of one; ``transitions``, n steps of one. Server, producer and consumer are
processes of their own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import reverb
import tensorflow as tf

from benchmarks.beside.scripts.arrivals import START_S, Arrivals
from benchmarks.beside.scripts.cartpole_rollouts import Arrays, Pace, Rollouts, layout
from benchmarks.beside.scripts.job import beside, do_job, found, free_port

TABLE = "experience"
MOST_UNREAD = {"chunks": 16, "sequences": 16 * 256, "transitions": 100_000}
READ_AT_ONCE = 256
READ_AHEAD = {"chunks": 4, "sequences": 512, "transitions": 1024}


def signature(job: dict[str, Any]) -> dict[str, Any]:
    """Return what an item is, as TensorFlow says it."""
    kinds = _kinds(job)
    return {
        name: tf.TensorSpec(shape, tf.as_dtype(kind), name)
        for name, (shape, kind) in {**kinds, "ended_s": ((), np.float64)}.items()
    }


def _kinds(job: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], Any]]:
    n = job["n_step"]
    if job["items"] == "transitions":
        return {
            "observation": ((4,), np.float32),
            "action": ((), np.int64),
            "rewards": ((n,), np.float32),
            "terminated": ((n,), np.bool_),
            "next_observation": ((4,), np.float32),
        }
    whole = layout(job["unroll"], job["envs"])
    if job["items"] == "chunks":
        return whole
    # Without the environments' axis.
    return {name: ((s[0], *s[2:]), kind) for name, (s, kind) in whole.items()}


def serve(port: int, job: dict[str, Any]) -> None:
    """Serve a first-in-first-out table that gives each item out once."""
    most = MOST_UNREAD[job["items"]]
    table = reverb.Table.queue(TABLE, most, signature=signature(job))
    reverb.Server([table], port=port).wait()


def produce(port: int, job: dict[str, Any]) -> None:
    """Step environments and insert what comes of it, for ever."""
    client = reverb.Client(f"127.0.0.1:{port}")
    rollouts = Rollouts(job["envs"], job["unroll"])
    pace = Pace(job["rate"], job["envs"] * job["unroll"])
    WRITERS[job["items"]](client, _unrolls(rollouts, pace), job)


def _unrolls(rollouts: Rollouts, pace: Pace) -> Iterator[Arrays]:
    while True:
        pace.wait()
        yield rollouts.collect()


def _write_chunks(client: Any, unrolls: Iterator[Arrays], job: dict[str, Any]) -> None:
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for unroll in unrolls:
            writer.append(unroll)
            newest = {name: column[-1] for name, column in writer.history.items()}
            writer.create_item(TABLE, 1.0, newest)
            # One is on its way while the next is made.
            writer.flush(block_until_num_items=1)


def _write_sequences(
    client: Any, unrolls: Iterator[Arrays], job: dict[str, Any]
) -> None:
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for unroll in unrolls:
            ended_s = unroll.pop("ended_s")
            for env in range(job["envs"]):
                columns = {name: array[:, env] for name, array in unroll.items()}
                writer.append({**columns, "ended_s": ended_s})
                newest = {name: c[-1] for name, c in writer.history.items()}
                writer.create_item(TABLE, 1.0, newest)
            writer.flush(block_until_num_items=job["envs"])


def _write_transitions(
    client: Any, unrolls: Iterator[Arrays], job: dict[str, Any]
) -> None:
    """Write with a writer for each environment: a stream of steps of its own."""
    n = job["n_step"]
    writers = [client.trajectory_writer(n + 1) for _ in range(job["envs"])]
    held = [0] * job["envs"]
    for unroll in unrolls:
        for step in range(job["unroll"]):
            now_s = np.array(time.time())
            for env, writer in enumerate(writers):
                writer.append(_row(unroll, step, env, now_s))
                if held[env] >= n:
                    writer.create_item(TABLE, 1.0, _transition(writer.history, n))
                # A reset row begins nothing; its observation ends the row before.
                held[env] = held[env] + 1 if unroll["valid"][step, env] else 0
        for writer in writers:
            writer.flush(block_until_num_items=READ_AT_ONCE)


WRITERS = {
    "chunks": _write_chunks,
    "sequences": _write_sequences,
    "transitions": _write_transitions,
}


def _row(unroll: Arrays, step: int, env: int, now_s: Any) -> dict[str, Any]:
    return {
        "observation": unroll["observations"][step, env],
        "action": unroll["actions"][step, env],
        "reward": unroll["rewards"][step, env],
        "terminated": unroll["terminated"][step, env],
        "ended_s": now_s,
    }


def _transition(history: Any, n: int) -> dict[str, Any]:
    return {
        "observation": history["observation"][-n - 1],
        "action": history["action"][-n - 1],
        "rewards": history["reward"][-n - 1 : -1],
        "terminated": history["terminated"][-n - 1 : -1],
        "next_observation": history["observation"][-1],
        "ended_s": history["ended_s"][-1],
    }


def consume(port: int, job: dict[str, Any]) -> dict[str, float]:
    """Read until the time is over; return the figures."""
    items = job["items"]
    dataset = reverb.TrajectoryDataset(
        server_address=f"127.0.0.1:{port}",
        table=TABLE,
        dtypes={name: spec.dtype for name, spec in signature(job).items()},
        shapes={name: spec.shape for name, spec in signature(job).items()},
        max_in_flight_samples_per_worker=READ_AHEAD[items],
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=int(START_S * 1000),
    )
    arrivals = Arrivals(job["warm_up_s"], job["seconds"])
    if items != "chunks":
        num_items = job["envs"] if items == "sequences" else READ_AT_ONCE
        dataset = dataset.batch(num_items)
    for sample in dataset.as_numpy_iterator():
        if items == "transitions":
            _take_transitions(arrivals, sample.data)
        else:
            arrivals.take(_time_major(sample.data, items), job["n_step"])
        if arrivals.are_over:
            break
    return arrivals.figures()


def _time_major(data: Arrays, items: str) -> Arrays:
    if items == "chunks":
        return data
    ended_s = data.pop("ended_s")
    unroll = {name: array.swapaxes(0, 1) for name, array in data.items()}
    return {**unroll, "ended_s": ended_s.mean()}


def _take_transitions(arrivals: Arrivals, batch: Arrays) -> None:
    powers = 0.99 ** np.arange(batch["rewards"].shape[1], dtype=np.float32)
    batch["rewards"] @ powers
    arrivals.add(len(batch["rewards"]), float(batch["ended_s"].mean()))


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Start a server and a producer, consume, and return the figures."""
    port = free_port()
    with beside(serve, produce, args=(port, job)):
        figures = consume(port, job)
    return found(figures, "dm-reverb", "tensorflow", "numpy")


if __name__ == "__main__":
    do_job(main)
