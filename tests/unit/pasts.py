"""A past that a test makes up: streams with episodes, and a source of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from archive.recorded import Gap, Recorded, SourceInfo
from schemas.experiment import Experiment, from_values
from schemas.records import NO_POLICY, PolicyRef, SourceRef, StreamEnd, Unroll
from schemas.tensors import pack
from tests.unit.test_processor_oracle import make_unroll

TOPIC = "rollstream.old.trajectories"


class Listed:
    """A source that is a list of records for each partition."""

    def __init__(self, *partitions: list[Unroll | StreamEnd], first: int = 0) -> None:
        self.partitions = partitions
        self.first = first
        self.info = SourceInfo(small("old"), "r1", TOPIC, "id1", None)

    def bounds(self) -> Mapping[int, tuple[int, int]]:
        found = enumerate(self.partitions)
        return {number: (self.first, len(each)) for number, each in found}

    def gaps(self) -> list[Gap]:
        return []

    def read(self, partition: int, first: int, end: int) -> Iterator[Recorded]:
        for offset in range(first, min(end, len(self.partitions[partition]))):
            address = SourceRef(TOPIC, partition, offset)
            yield Recorded(address, 0, self.partitions[partition][offset])

    def close(self) -> None:
        pass


def small(name: str, **spec: Any) -> Experiment:
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": name},
            "spec": {
                "env": {"id": "CartPole-v1"},
                "workers": {"replicas": 0},
                "topics": {"partitions": 2},
                **spec,
            },
        }
    )


def stream(
    rng: np.random.Generator,
    worker: str = "w0",
    incarnation: int = 0,
    *,
    records: int = 6,
    envs: int = 2,
    end: bool = True,
    crashes: float = 0.0,
    at_ms: int = 0,
    **changes: Any,
) -> list[Unroll]:
    """Make the unrolls of one stream: episodes of some 5 steps, and their reset rows.

    Args:
        crashes: how often a row's environment gave no answer.
        at_ms: the time of the first; each is 10 ms later.
    """
    found, first_step = [], 0
    numbers, is_reset = np.zeros(envs, np.int64), np.zeros(envs, bool)
    for sequence in range(records):
        steps = int(rng.integers(1, 6))
        ends = rng.random((steps, envs)) < 0.2
        failed = rng.random((steps, envs)) < crashes
        marks: dict[str, list[tuple[int, int]]] = {
            "terminated": [], "truncated": [], "invalid": [],
        }  # fmt: skip
        begun = numbers.copy()
        for step in range(steps):
            for env in range(envs):
                place = step, env
                if is_reset[env]:
                    is_reset[env] = False
                    marks["invalid"].append(place)
                    continue
                if failed[place]:
                    marks["invalid"].append(place)
                    marks["truncated"].append(place)
                elif ends[place]:
                    kind = "terminated" if rng.random() < 0.5 else "truncated"
                    marks[kind].append(place)
                else:
                    continue
                is_reset[env] = True
                numbers[env] += 1
        unroll = make_unroll(
            rng.integers(1, 5, (steps, envs)).astype(float).tolist(),
            worker=worker,
            incarnation=incarnation,
            sequence=sequence,
            first_step=first_step,
            end=end and sequence == records - 1,
            produced_at_ms=at_ms + 10 * sequence,
            **marks,
        )
        policy = PolicyRef(0, sequence // 2 - 1) if sequence > 1 else NO_POLICY
        more = {"episodes": pack(begun), "policy": policy, **changes}
        found.append(replace(unroll, **more))
        first_step += steps
    return found
