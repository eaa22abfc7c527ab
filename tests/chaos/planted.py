"""A small clean run, worked out in memory: two workers, two incarnations of one.

Tests plant one fault in it and see which check finds it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from schemas.records import PolicyRef, StreamEnd, TransitionBatch, Unroll
from schemas.tensors import pack
from stream_processors.tails import Emit, ReturnOptions, Tails
from tests.chaos.counting_env import is_terminated, length_of
from tests.chaos.evidence import Committed, Ended, Evidence, Healed, Logged, Published
from tests.chaos.journal import Life
from tests.unit.test_processor_oracle import make_unroll

N_STEP, GAMMA, SCALE = 3, 0.9, 0.5
STEPS, ENVS = 6, 2


class Counter:
    """The environment's rule, one environment at a time, no numpy."""

    def __init__(self, worker: int, nonce: int, env: int) -> None:
        self.who = (worker, nonce, env)
        self.episode = self.step = 0

    @property
    def observation(self) -> list[float]:
        return [*self.who, self.episode, self.step]

    def take(self) -> tuple[float, bool, bool, bool]:
        """Return (reward, terminated, truncated, valid)."""
        _, nonce, env = self.who
        if self.step == length_of(nonce, env, self.episode):
            self.episode, self.step = self.episode + 1, 0
            return 0.0, False, False, False
        self.step += 1
        over = self.step == length_of(nonce, env, self.episode)
        how = is_terminated(nonce, env, self.episode)
        return float(self.step), over and how, over and not how, True


def unrolls(worker: int, incarnation: int, count: int, nonce: int) -> list[Unroll]:
    """A stream's unrolls, the last of which ends it."""
    envs = [Counter(worker, nonce, env) for env in range(ENVS)]
    found = []
    for sequence in range(count):
        observations = [[env.observation for env in envs]]
        rows = []
        for _ in range(STEPS):
            rows.append([env.take() for env in envs])
            observations.append([env.observation for env in envs])
        columns = np.array(rows)
        first = [o[3] if row[3] else o[3] + 1 for o, row in zip(
            observations[0], rows[0], strict=True)]  # fmt: skip
        unroll = make_unroll(
            columns[:, :, 0].tolist(),
            worker=f"w{worker}",
            incarnation=incarnation,
            sequence=sequence,
            first_step=sequence * STEPS,
            observations=np.array(observations),
            end=sequence == count - 1,
        )
        flags = {
            name: pack(columns[:, :, i].astype(np.bool_))
            for i, name in enumerate(("terminated", "truncated", "valid"), 1)
        }
        episodes = pack(np.array(first, np.int64))
        policy = PolicyRef(5, min(sequence + incarnation // 8 * 3, 3))
        found.append(replace(unroll, episodes=episodes, policy=policy, **flags))
    return found


def logged(partition: int, records: list[Any], at_s: float) -> list[Logged]:
    """Records at the offsets 0, 1, ... of a partition, a tenth of a second each."""
    return [
        Logged(partition, offset, at_s + offset / 10, record, f"{partition}-{offset}")
        for offset, record in enumerate(records)
    ]


def clean_run() -> Evidence:
    """Worker 0 was killed after its incarnation 3; worker 1 went on all the time."""
    killed = unrolls(0, 3, 4, nonce=100)
    killed[-1] = replace(killed[-1], end_of_stream=False)
    log = [
        logged(0, killed + unrolls(0, 9, 3, nonce=200), 100.0),
        logged(1, [*unrolls(1, 4, 5, nonce=300), StreamEnd("t", "r", "w1", 4, "", 0)],
               100.0),
    ]  # fmt: skip
    evidence = Evidence("planted", N_STEP, GAMMA, SCALE)
    evidence.trajectories = log[0] + log[1]
    evidence.replay = [
        each for p in range(2) for each in logged(p, process(p, log[p]), 101.0)
    ]
    remember_digests(evidence)
    evidence.lives = [worker_life(evidence), *learner_lives(evidence)]
    evidence.committed = [
        Committed(110.0 + i, role, p, at)
        for role in ("processor", "learner")
        for p, total in ((0, 7), (1, 6 if role == "processor" else 5))
        for i, at in enumerate((2, total))
    ]
    evidence.policies = [Published(i, (5, i)) for i in range(4)]
    evidence.ended = [
        Ended("worker", 0, 1, -9, 102.0, harmed=True),
        Ended("learner", 0, 2, -9, 105.5, harmed=True),
        Ended("learner", 0, 3, 0, 130.0, asked=True, took_s=0.5),
    ]
    evidence.healed = Healed(3.0, True, {"processor": 0, "learner": 0})
    evidence.summary = {"lost_steps": 0}
    return evidence


def process(partition: int, log: list[Logged]) -> list[TransitionBatch]:
    """What a processor makes of a partition."""
    tails = Tails("t", partition, ReturnOptions(N_STEP, GAMMA, SCALE, 1e-6))
    return [
        action.batch
        for each in log
        for action in tails.feed(each.offset, each.record)  # type: ignore[arg-type]
        if isinstance(action, Emit)
    ]


def remember_digests(evidence: Evidence) -> None:
    """Let the second reading be as the first."""
    for kind, log in (
        ("trajectories", evidence.trajectories), ("replay", evidence.replay)
    ):  # fmt: skip
        evidence.second_digests[kind] = {each.address: each.digest for each in log}


def worker_life(evidence: Evidence) -> Life:
    """The journal of all deliveries."""
    lines = [
        {
            "kind": "ack", "at_s": each.at_s, "error": None,
            "partition": each.partition, "offset": each.offset,
        } | identity(unroll)
        for each, unroll in evidence.unrolls
    ]  # fmt: skip
    return Life("worker-0", 1, lines=lines)


def identity(record: Unroll | TransitionBatch) -> dict[str, Any]:
    """Who a record is, as journals say it."""
    names = (
        "worker", "incarnation", "sequence", "first_step", "num_steps", "num_envs"
    )  # fmt: skip
    valid = int(record.valid.array().sum())
    return {name: getattr(record, name) for name in names} | {"valid": valid}


def learner_lives(evidence: Evidence) -> list[Life]:
    """One learner that dies after a checkpoint and three more batches; its follower."""
    inserts = [
        {"kind": "insert", "at_s": 104.0, "partition": each.partition,
         "offset": each.offset, **identity(batch)}
        for each, batch in evidence.batches
    ]  # fmt: skip
    in_checkpoint, undone = inserts[:5], inserts[5:8]
    positions = {0: 5, 1: 0}
    mark = {"kind": "mark", "at_s": 105.0, "checkpoint": [5, 1], "positions": positions}
    durable = {"kind": "durable", "at_s": 105.1, "checkpoint": [5, 1]}
    updates = [{"kind": "update", "at_s": 104.5, "updates": i} for i in (1, 2)]
    versions = [
        {"kind": "policy", "at_s": 105.0, "version": [5, i], "offset": i}
        for i in range(4)
    ]
    lines = [*in_checkpoint, *updates, mark, durable, *undone, *versions]
    first = Life("learner-0", 2, lines=lines)
    restored = {
        "kind": "restored", "at_s": 106.0, "checkpoint": [5, 1],
        "env_steps": sum(line["valid"] for line in in_checkpoint), "updates": 2,
    }  # fmt: skip
    last = {
        "kind": "mark", "at_s": 108.0, "checkpoint": [20, 2],
        "positions": {0: 7, 1: 5},
    }  # fmt: skip
    done = {"kind": "durable", "at_s": 108.1, "checkpoint": [20, 2]}
    return [first, Life("learner-0", 3, lines=[restored, *inserts[5:], last, done])]
