"""Recorded frames through a dm-reverb server; runs in the peer's virtual environment.

``python frames_reverb.py JOB FOUND``: both JSON files. The job's ``items`` says what an
item of the table is: ``unrolls`` of all environments, or ``sequences`` of one, which
lie in the server as columns that it compresses chunk by chunk. Server, producer and
consumer are processes of their own.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import psutil
import reverb
import tensorflow as tf

from benchmarks.beside.scripts.arrivals import n_step
from benchmarks.beside.scripts.job import beside, do_job, found, free_port
from benchmarks.beside.scripts.recorded_frames import SIDE, RecordedFrames

TABLE = "frames"
NUM_ACTIONS = 18
MOST_UNREAD = {"unrolls": 8, "sequences": 8 * 32}
READ_AHEAD = {"unrolls": 2, "sequences": 32}
START_S, FILL_S = 120.0, 20.0

Arrays = dict[str, Any]


def signature(job: Arrays) -> Arrays:
    """Return what an item is, as TensorFlow says it."""
    steps, envs = job["unroll"], job["envs"]
    lead = () if job["items"] == "sequences" else (envs,)
    columns = {
        "observations": ((steps + 1, *lead, SIDE, SIDE), np.uint8),
        "actions": ((steps, *lead), np.int64),
        "rewards": ((steps, *lead), np.float64),
        "terminated": ((steps, *lead), np.bool_),
        "truncated": ((steps, *lead), np.bool_),
        "valid": ((steps, *lead), np.bool_),
    }
    return {
        name: tf.TensorSpec(shape, tf.as_dtype(kind), name)
        for name, (shape, kind) in columns.items()
    }


def serve(port: int, job: Arrays) -> None:
    """Serve a first-in-first-out table that gives each item out once."""
    most = MOST_UNREAD[job["items"]]
    table = reverb.Table.queue(TABLE, most, signature=signature(job))
    reverb.Server([table], port=port).wait()


def unrolls(job: Arrays) -> Iterator[Arrays]:
    """Step the environments at random, for ever; yield what T steps were."""
    env = RecordedFrames(job["directory"])
    rng = np.random.default_rng(0)
    steps, envs = job["unroll"], job["envs"]
    frames = env.reset()
    over = np.zeros(envs, np.bool_)
    while True:
        made = {
            name: np.zeros(spec.shape, spec.dtype.as_numpy_dtype)
            for name, spec in signature({**job, "items": "unrolls"}).items()
        }
        made["observations"][0] = frames
        for step in range(steps):
            made["actions"][step] = rng.integers(0, NUM_ACTIONS, envs)
            made["valid"][step] = ~over
            frames, rewards, terminated, truncated = env.step()
            made["rewards"][step] = rewards
            made["terminated"][step] = terminated
            made["truncated"][step] = truncated
            made["observations"][step + 1] = frames
            over = terminated | truncated
        yield made


def produce(port: int, job: Arrays) -> None:
    """Insert unrolls, for ever."""
    client = reverb.Client(f"127.0.0.1:{port}")
    by_env = job["items"] == "sequences"
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for unroll in unrolls(job):
            items = [unroll]
            if by_env:
                items = [
                    {name: array[:, env] for name, array in unroll.items()}
                    for env in range(job["envs"])
                ]
            for item in items:
                writer.append(item)
                newest = {name: c[-1] for name, c in writer.history.items()}
                writer.create_item(TABLE, 1.0, newest)
            # One unroll is on its way while the next is made.
            writer.flush(block_until_num_items=len(items))


def consume(port: int, job: Arrays, pids: list[int]) -> dict[str, float]:
    """Read until the time is over; return the figures."""
    specs = signature(job)
    dataset = reverb.TrajectoryDataset(
        server_address=f"127.0.0.1:{port}",
        table=TABLE,
        dtypes={name: spec.dtype for name, spec in specs.items()},
        shapes={name: spec.shape for name, spec in specs.items()},
        max_in_flight_samples_per_worker=READ_AHEAD[job["items"]],
        num_workers_per_iterator=1,
        rate_limiter_timeout_ms=int(START_S * 1000),
    )
    samples = dataset.as_numpy_iterator()
    take(next(samples).data)
    run_for(samples, job["warm_up_s"])
    before_s, began_s = cpu_s(pids), time.monotonic()
    steps = run_for(samples, job["seconds"])
    seconds, used_s = time.monotonic() - began_s, cpu_s(pids) - before_s
    return {
        "steps_per_s": steps / seconds,
        "cpu_us_per_step": used_s / steps * 1e6,
        "bytes_per_step": stored_bytes(port, job),
    }


def run_for(samples: Iterator[Any], seconds: float) -> int:
    """Read for a while; return the valid rows."""
    ends_s, steps = time.monotonic() + seconds, 0
    while time.monotonic() < ends_s:
        steps += take(next(samples).data)
    return steps


def take(data: Arrays) -> int:
    """Make an item what a learner needs; return its valid rows."""
    columns = {name: array for name, array in data.items() if name != "observations"}
    if columns["valid"].ndim == 1:
        columns = {name: array[:, None] for name, array in columns.items()}
    n_step(columns, 3)
    return int(np.count_nonzero(data["valid"]))


def cpu_s(pids: list[int]) -> float:
    """Return the CPU time of all processes so far."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return float(sum(each.user + each.system for each in times))


def stored_bytes(port: int, job: Arrays) -> float:
    """Return what a step takes in the server: as it writes it, not deflated again."""
    client = reverb.Client(f"127.0.0.1:{port}")
    ends_s = time.monotonic() + FILL_S
    while client.server_info()[TABLE].current_size < MOST_UNREAD[job["items"]]:
        if time.monotonic() > ends_s:  # it is full again soon: nobody reads any more
            raise TimeoutError(f"expected a full table in {FILL_S:.0f} s")
        time.sleep(0.05)
    path = Path(client.checkpoint())
    chunks, items = (
        zlib.decompress((path / f"{name}.tfrecord").read_bytes())
        for name in ("chunks", "items")
    )
    shutil.rmtree(path.parent)
    steps = job["unroll"] * (1 if job["items"] == "sequences" else job["envs"])
    return float(len(chunks) / max(records_in(items) * steps, 1))


def records_in(data: bytes) -> int:
    """Return how many records a TFRecord file has: length, check, bytes, check."""
    at = count = 0
    while at < len(data):
        at += 16 + int.from_bytes(data[at : at + 8], "little")
        count += 1
    return count


def main(job: Arrays) -> Arrays:
    """Start a server and a producer, consume, and return the figures."""
    port = free_port()
    with beside(serve, produce, args=(port, job)) as pids:
        figures = consume(port, job, [os.getpid(), *pids])
    return found(figures, "dm-reverb", "tensorflow", "numpy")


if __name__ == "__main__":
    do_job(main)
