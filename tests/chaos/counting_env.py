"""``Counting-v0``: observations that say whose they are, and a journal of deliveries.

Imported by workers through ROLLSTREAM_ENV_MODULES. An observation is (worker, nonce,
env, episode, step); the nonce is drawn at each beginning of a stream, so that no two
incarnations share one. The reward of a step is its number, 1, 2, ...
"""

from __future__ import annotations

import functools
import secrets
from typing import Any

import gymnasium
import numpy as np
from confluent_kafka import KafkaError, Message
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from infra.kafka.delivery import OnDelivery
from schemas.codec import decode_any
from schemas.records import Unroll
from tests.chaos.journal import Journal, open_journal, role_index
from tests.chaos.sends import report_sends

ENV_ID = "Counting-v0"
COLUMNS = ("worker", "nonce", "env", "episode", "step")
MAX_LENGTH = 25


def length_of(nonce: int, env: int, episode: int) -> int:
    """Return how many steps an episode has: 3 to MAX_LENGTH."""
    return 3 + (nonce + 7 * env + 5 * episode) % (MAX_LENGTH - 2)


def is_terminated(nonce: int, env: int, episode: int) -> bool:
    """Whether an episode ends by termination; else by truncation."""
    return (nonce + env + episode) % 3 != 0


class Counting(VectorEnv):
    """Counts; resets itself in the next step."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, max_episode_steps: int | None = None) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 2.0**53, (5,), np.float64)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._worker = role_index()
        begin_journal()

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._nonce = secrets.randbits(40)
        if (journal := begin_journal()) is not None:
            journal.write("reset", worker=self._worker, nonce=self._nonce, seed=seed)
        self._episode = np.zeros(self.num_envs, np.int64)
        self._begin()
        self._step = np.zeros(self.num_envs, np.int64)
        return self._observe(), {}

    def _begin(self) -> None:
        who = [(self._nonce, i, int(e)) for i, e in enumerate(self._episode)]
        self._length = np.array([length_of(*each) for each in who])
        self._terminates = np.array([is_terminated(*each) for each in who])

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        over = self._step == self._length
        self._step += 1
        if over.any():
            self._episode += over
            self._step[over] = 0
            self._begin()
        ended = self._step == self._length
        rewards = np.where(over, 0.0, self._step)
        terminated = ended & self._terminates
        return self._observe(), rewards, terminated, ended & ~terminated, {}

    def _observe(self) -> np.ndarray:
        observed = np.empty((self.num_envs, 5))
        observed[:, 0] = self._worker
        observed[:, 1] = self._nonce
        observed[:, 2] = np.arange(self.num_envs)
        observed[:, 3] = self._episode
        observed[:, 4] = self._step
        return observed


def hook_deliveries(journal: Journal) -> None:
    """Write down every unroll that is sent, and every report of its delivery."""
    report_sends(
        lambda topic, key: topic.endswith(".trajectories"),
        lambda value: _journal_one(journal, value),
    )


def _journal_one(journal: Journal, value: bytes) -> OnDelivery:
    record = decode_any(value)
    who: dict[str, Any] = {"worker": record.worker, "incarnation": record.incarnation}
    kind = "end"
    if isinstance(record, Unroll):
        kind = "ack"
        names = ("sequence", "first_step", "num_steps", "num_envs")
        who |= {name: getattr(record, name) for name in names}
        who["valid"] = int(record.valid.array().sum())
        journal.write("sent", durably=False, **who)

    def report(error: KafkaError | None, message: Message) -> None:
        where = {"partition": message.partition(), "offset": message.offset()}
        journal.write(kind, error=error and error.str(), **who, **where)

    return report


@functools.cache
def begin_journal() -> Journal | None:
    """Open this process's journal; not at import, which is before a worker's fork."""
    journal = open_journal("worker")
    if journal is not None:
        hook_deliveries(journal)
    return journal


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, vector_entry_point=Counting)
