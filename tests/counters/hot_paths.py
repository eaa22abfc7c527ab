"""What each role does with an unroll, as production does it, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from gymnasium import spaces

from learner.dedup import Identity, Ledger, Verdict
from learner.replay_buffer import ReplayBuffer
from producers.acting import Actor, RandomActor
from producers.guarded_env import Environments
from producers.packing import Packing
from producers.q_actor import QActor
from producers.rollout import Rollout, UnrollArrays
from producers.seeding import StreamSeeds
from producers.unrolls import encode_unrolls
from producers.watchdog import Watchdog
from schemas.codec import decode, encode
from schemas.records import StreamEnd, TransitionBatch, Unroll
from stream_processors.tails import Emit, ReturnOptions, Tails
from tests.counters.worlds import (
    FRAME,
    POLE,
    clockwork,
    clockwork_description,
    small_policy,
)
from tests.unit.replay_batches import replay
from tests.unit.test_rollout import TEMPLATE

N_STEP, GAMMA = 3, 0.99
BATCH_ROWS = 512
CHUNKS = 4
"""What the replay buffer has room for: it is full, and evicts, when it is counted."""

WARM_UP = 2 * CHUNKS
"""Unrolls before anything is counted: packing is decided, buffers are full."""


@dataclass(frozen=True)
class Shape:
    """T vector steps of B environments, of four numbers each or of a picture."""

    num_envs: int
    num_steps: int
    is_frames: bool = False

    @property
    def observation(self) -> spaces.Box:
        """What one environment shows."""
        return FRAME if self.is_frames else POLE

    @property
    def rows(self) -> int:
        """T·B."""
        return self.num_envs * self.num_steps


class Worker:
    """Steps environments and encodes what they did."""

    def __init__(self, environments: Environments, actor: Actor, num_steps: int):
        self._rollout = Rollout(environments, StreamSeeds(1, 0, 0))
        self._actor, self._num_steps = actor, num_steps
        # By size alone: what CPU time says of encodings is not the same twice.
        self._packing = Packing(cpu_s=lambda: 0.0)
        self._sequence = 0

    def collect(self) -> UnrollArrays:
        """Let the environments go on for an unroll."""
        return self._rollout.collect(self._actor, self._num_steps)

    def encode(self, arrays: UnrollArrays) -> list[bytes]:
        """Return the records of an unroll."""
        template = replace(TEMPLATE, sequence=self._sequence)
        found = [p.value for p in encode_unrolls(arrays, template, self._packing)]
        self._sequence += len(found)
        return found

    def parts(self) -> list[bytes]:
        """Return the records of the next unroll."""
        return self.encode(self.collect())

    def unroll(self) -> bytes:
        """Return the next unroll, which fits one record."""
        (value,) = self.parts()
        return value


@contextmanager
def working(shape: Shape) -> Iterator[Worker]:
    """Yield a worker of clockwork environments, warmed up."""
    watchdog = Watchdog(600.0)
    try:
        environments = clockwork(shape.observation, shape.num_envs, watchdog)
        worker = Worker(environments, actor_of(shape), shape.num_steps)
        for _ in range(WARM_UP):
            worker.parts()
        yield worker
        environments.close()
    finally:
        watchdog.close()


def actor_of(shape: Shape) -> Actor:
    """Return who acts: a policy, or on pictures chance."""
    env = clockwork_description(shape.observation)
    if shape.is_frames:
        return RandomActor(env.action, shape.num_envs)
    return QActor(small_policy(env), shape.num_envs, np.full(shape.num_envs, 0.1))


class Processor:
    """Decodes unrolls and encodes the batches made of them."""

    def __init__(self) -> None:
        self._tails = Tails("t", 0, ReturnOptions(N_STEP, GAMMA))
        self._offset = 0

    def decode(self, value: bytes) -> Unroll:
        """Open a record."""
        return decode(value, Unroll, StreamEnd)

    def compute(self, unroll: Unroll) -> list[bytes]:
        """Return the batches that an unroll completes: that of the one before it."""
        actions = self._tails.feed(self._offset, unroll)
        self._offset += 1
        return [encode(each.batch) for each in actions if isinstance(each, Emit)]

    def take(self, value: bytes) -> list[bytes]:
        """Return the batches that a record completes."""
        return self.compute(self.decode(value))


class Learner:
    """Decodes, judges and inserts batches; samples, and updates priorities."""

    def __init__(self, shape: Shape) -> None:
        env = clockwork_description(shape.observation)
        spec = replay(CHUNKS * shape.rows)
        self.buffer = ReplayBuffer(env, spec, unroll_length=shape.num_steps)
        self._ledger = Ledger(TEMPLATE.run_id)
        self.rng = np.random.default_rng(0)
        self._offset = 0

    def decode(self, value: bytes) -> TransitionBatch:
        """Open a record."""
        return decode(value, TransitionBatch)

    def learn(self, batch: TransitionBatch) -> None:
        """Take a batch in, and do all but the update itself."""
        assert self._ledger.judge(Identity.of(batch)).verdict is Verdict.NEW
        assert batch.valid.array().any()
        self.buffer.insert(batch, 0, self._offset)
        self._offset += 1
        sample = self.buffer.sample(BATCH_ROWS, 0.4, self.rng)
        self.buffer.update_priorities(sample.indices, np.abs(sample.returns))

    def take(self, value: bytes) -> None:
        """Do both."""
        self.learn(self.decode(value))


def records(shape: Shape, count: int) -> list[bytes]:
    """Return ``count`` consecutive unrolls, behind those of the warm-up."""
    with working(shape) as worker:
        return [worker.unroll() for _ in range(count)]


def batches(shape: Shape, count: int) -> list[bytes]:
    """Return ``count`` consecutive batches."""
    processor = Processor()
    return [b for r in records(shape, count + 1) for b in processor.take(r)]
