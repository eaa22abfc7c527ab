"""Unrolls through a Redis stream; runs in the peer's virtual environment.

``python ingest_redis.py JOB FOUND``: both JSON files. A producer adds packed unrolls, a
consumer of a group reads, makes n-step returns, acknowledges and deletes them.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from typing import Any

import numpy as np
import redis

from benchmarks.beside.scripts.arrivals import Arrivals
from benchmarks.beside.scripts.cartpole_rollouts import Arrays, Pace, Rollouts, layout
from benchmarks.beside.scripts.job import beside, do_job, found, free_port

STREAM, GROUP = "unrolls", "learner"
START_S = 20.0
MOST_UNREAD = 16
READ_AT_ONCE = 8


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Start a server and a producer, consume, and return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        server = subprocess.Popen(_command(port, folder), stdout=subprocess.DEVNULL)
        try:
            client = _connected(port)
            client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
            with beside(produce, args=(port, job)):
                figures = consume(client, job)
            served = client.info("server")["redis_version"]
        finally:
            server.kill()
            server.wait()
    result = found(figures, "redis", "numpy")
    result["versions"]["redis-server"] = served
    return result


def produce(port: int, job: dict[str, Any]) -> None:
    """Add an unroll after the other; wait while too many are unread."""
    client = redis.Redis(port=port)
    rollouts = Rollouts(job["envs"], job["unroll"])
    pace = Pace(job["rate"], job["envs"] * job["unroll"])
    while True:
        pace.wait()
        packed = {name: array.tobytes() for name, array in rollouts.collect().items()}
        with client.pipeline(transaction=False) as pipeline:
            pipeline.xadd(STREAM, packed)
            pipeline.xlen(STREAM)
            unread = pipeline.execute()[1]
        while unread >= MOST_UNREAD:
            time.sleep(0.001)
            unread = client.xlen(STREAM)


def consume(client: Any, job: dict[str, Any]) -> dict[str, float]:
    """Read, open and acknowledge until the time is over."""
    arrivals = Arrivals(job["warm_up_s"], job["seconds"])
    kinds = layout(job["unroll"], job["envs"])
    while not arrivals.are_over:
        found = client.xreadgroup(
            GROUP, "one", {STREAM: ">"}, count=READ_AT_ONCE, block=1000
        )
        records = _records(found)
        for _, packed in records:
            size = sum(map(len, packed.values()))
            arrivals.take(_unpacked(packed, kinds), job["n_step"], size)
        if records:
            ids = [number for number, _ in records]
            with client.pipeline(transaction=False) as pipeline:
                pipeline.xack(STREAM, GROUP, *ids)
                pipeline.xdel(STREAM, *ids)
                pipeline.execute()
    return arrivals.figures()


def _records(found: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Return (id, fields) of each record; the answer's form depends on the protocol."""
    if not found:
        return []
    if isinstance(found, dict):
        (batches,) = found.values()
        return [record for batch in batches for record in batch]
    return [record for _, records in found for record in records]


def _unpacked(packed: dict[bytes, bytes], kinds: dict[str, Any]) -> Arrays:
    unroll: Arrays = {
        name: np.frombuffer(packed[name.encode()], kind).reshape(shape)
        for name, (shape, kind) in kinds.items()
    }
    unroll["ended_s"] = np.frombuffer(packed[b"ended_s"], np.float64)[0]
    return unroll


def _command(port: int, folder: str) -> list[str]:
    # Rewriting the file would only take time from it: it is thrown away in seconds.
    return [
        "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder,
        "--save", "", "--appendonly", "yes", "--appendfsync", "everysec",
        "--auto-aof-rewrite-percentage", "0",
    ]  # fmt: skip


def _connected(port: int) -> Any:
    client = redis.Redis(port=port)
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            client.ping()
            return client
        except redis.ConnectionError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    do_job(main)
