"""Unrolls through Ray's object store; runs in the peer's virtual environment.

``python ingest_ray.py JOB FOUND``: both JSON files. Producers put unrolls into the
store and tell a replay actor; a consumer takes what the replay actor has, all of it at
once. Data pass through shared memory once, and are not copied to be read.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ray

from benchmarks.beside.scripts.arrivals import START_S, Arrivals
from benchmarks.beside.scripts.cartpole_rollouts import Pace, Rollouts
from benchmarks.beside.scripts.job import do_job, found

MOST_UNREAD = 16
"""Unrolls: producers wait while as many are with the replay actor."""
STORE_BYTES = 512 * 2**20


class Replay:
    """Holds references to unrolls until somebody takes them, oldest first."""

    def __init__(self) -> None:
        self._unrolls: list[Any] = []
        self._changed = asyncio.Condition()

    async def add(self, held: list[Any]) -> None:
        """Take some in, when there is room."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._unrolls) < MOST_UNREAD)
            self._unrolls += held
            self._changed.notify_all()

    async def take(self) -> list[Any]:
        """Return all, when there are any."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._unrolls)
            taken, self._unrolls = self._unrolls, []
            self._changed.notify_all()
            return taken


class Producer:
    """Steps environments and adds unrolls."""

    def __init__(self, job: dict[str, Any], seed: int) -> None:
        self._job = job
        self._rollouts = Rollouts(job["envs"], job["unroll"], seed)

    def run(self, replay: Any) -> None:
        """Go on until the actor is killed."""
        job = self._job
        pace = Pace(job["rate"] / job["producers"], job["envs"] * job["unroll"])
        told: list[Any] = []
        while True:
            pace.wait()
            # In a list: an argument itself would be fetched by the replay actor.
            held = [ray.put(self._rollouts.collect())]
            # One is on its way while the next is made.
            ray.get(told)
            told = [replay.add.remote(held)]


class Consumer:
    """Reads unrolls, and makes returns and priorities of them."""

    def run(self, replay: Any, job: dict[str, Any]) -> dict[str, float]:
        """Consume until the time is over; return the figures."""
        arrivals = Arrivals(job["warm_up_s"], job["seconds"])
        asked = replay.take.remote()
        while not arrivals.are_over:
            # The next are asked for before these are read.
            held, asked = ray.get(asked, timeout=START_S), replay.take.remote()
            for unroll in ray.get(held):
                size = sum(array.nbytes for array in unroll.values())
                arrivals.take(unroll, job["n_step"], size)
        return arrivals.figures()


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Run the actors and return the figures."""
    ray.init(
        num_cpus=job["producers"] + 2,
        object_store_memory=STORE_BYTES,
        logging_level="error",
        log_to_driver=False,
        include_dashboard=False,
    )
    replay = ray.remote(Replay).remote()
    consumer = ray.remote(Consumer).remote()
    producers = [ray.remote(Producer).remote(job, i) for i in range(job["producers"])]
    running = [producer.run.remote(replay) for producer in producers]
    figures = ray.get(consumer.run.remote(replay, job))
    del running
    ray.shutdown()
    return found(figures, "ray", "numpy")


if __name__ == "__main__":
    do_job(main)
