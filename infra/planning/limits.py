"""What cannot be had more of by adding hosts, and how much of it a rate takes; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from infra.planning.constants import Constants
from infra.planning.demand import (
    HEADROOM,
    Demand,
    demand,
    fastest_rate,
    used_partitions,
)
from infra.planning.workload import Workload

MOST_WORKERS = 10_000
"""``spec.workers.replicas`` takes no more."""
MOST_ROLES_OF_AN_AGENT = 512
"""`infra/control/plans.py`: a plan is one znode."""
PARTITIONS_OF_A_BROKER = 4_000
"""Replicas: the general recommendation, as Kafka's KIP-578 quotes it."""


@dataclass(frozen=True)
class Host:
    """A machine, as all are taken to be.

    Attributes:
        cores: of it.
        network_bytes_per_s: each way.
    """

    cores: float
    network_bytes_per_s: float


@dataclass(frozen=True)
class Limit:
    """A resource of which there is so much and no more.

    Attributes:
        name: of it.
        used: by a rate.
        most: that there is.
        unit: of both.
        remedy: what to change in the spec.
    """

    name: str
    used: float
    most: float
    unit: str
    remedy: str

    @property
    def utilisation(self) -> float:
        """The share that is used; above 1 it is not enough."""
        return self.used / self.most if self.most else math.inf


def limits(
    work: Workload, rate: float, host: Host, costs: Constants
) -> tuple[Limit, ...]:
    """Return every limit at a rate; none falls as the rate grows."""
    needed = demand(work, rate, costs)
    return (
        Limit(
            "worker", needed.worker_busy, 1.0, "cores of one worker",
            "more workers with fewer envsPerWorker; vectorization async",
        ),
        Limit(
            "learner", needed.learner_cores, 1.0, "cores of the one learner",
            "fewer samplesPerInsert, a larger batchSize, a smaller network; a GPU "
            "takes the updates",
        ),
        Limit(
            "processors", needed.processors, used_partitions(work),
            "processors, one a partition that has a worker",
            "more topics.partitions, longer unrolls",
        ),
        Limit(
            "policies and credits", needed.control_bytes_per_s,
            host.network_bytes_per_s, "bytes/s from the broker that leads them",
            "fewer workers with more envsPerWorker each; a longer publishIntervalMs",
        ),
        Limit(
            "learner's network", needed.replay_bytes_per_s, host.network_bytes_per_s,
            "bytes/s to the learner's host", "frames as uint8; fewer environments",
        ),
        Limit(
            "metrics", needed.watch_cores, 1.0, "cores of whoever watches",
            "fewer workers with more envsPerWorker each",
        ),
        Limit(
            "workers", work.workers, MOST_WORKERS, "worker processes of a spec",
            "more envsPerWorker",
        ),
        Limit(
            "replay on the log", work.buffer_rows * work.replay_bytes,
            disk_bytes(work), "bytes: what a checkpoint refers to",
            "a larger topics.diskBudget, or a smaller replay.capacity",
        ),
    )  # fmt: skip


def disk_bytes(work: Workload) -> float:
    """Return what the disk budget leaves for one topic in partitions with workers."""
    return work.disk_budget / 2 * used_partitions(work) / work.partitions


def sustained(
    work: Workload, offered: float, host: Host, costs: Constants
) -> tuple[float, Limit | None]:
    """Return the rate that all limits let through, and which holds it back.

    Args:
        work: with as many workers as there are.
        offered: the rate at which they would step; 0 is kept to where even that is
            too much.
        host: what each machine is.
        costs: what things cost.
    """
    if not tight(work, offered, host, costs):
        return offered, None
    low, high = 0.0, offered
    for _ in range(50):
        middle = (low + high) / 2
        fits = not tight(work, middle, host, costs)
        low, high = (middle, high) if fits else (low, middle)
    return low, tight(work, high, host, costs)


def tight(work: Workload, rate: float, host: Host, costs: Constants) -> Limit | None:
    """Return the limit that is passed the farthest; None: none is."""
    found = limits(work, rate, host, costs)
    worst = max(found, key=lambda limit: limit.utilisation)
    return worst if is_passed(worst) else None


def is_passed(limit: Limit) -> bool:
    """Whether it is not enough; a rate just at it must not be by a rounding."""
    return limit.utilisation > 1 + 1e-9


def offered_rate(work: Workload, rate_per_env: float | None, costs: Constants) -> float:
    """Return the rate that is asked for, or else that of workers that never wait."""
    if rate_per_env is None:
        return fastest_rate(work, costs)
    return rate_per_env * work.num_envs


def brokers_needed(needed: Demand, partitions: int, host: Host) -> int:
    """Return how many brokers, each a host of its own, no fuller than HEADROOM."""
    return max(
        1,
        math.ceil(needed.kafka_cores / (HEADROOM * host.cores)),
        math.ceil(
            needed.broker_bytes_out_per_s / (HEADROOM * host.network_bytes_per_s)
        ),
        math.ceil(2 * partitions / PARTITIONS_OF_A_BROKER),
    )


def hosts_needed(needed: Demand, host: Host) -> int:
    """Return how many hosts all roles take, none fuller than HEADROOM."""
    roles = needed.workers + needed.processors + 2
    return max(
        1,
        math.ceil(needed.cores / (HEADROOM * host.cores)),
        math.ceil(roles / MOST_ROLES_OF_AN_AGENT),
    )
