"""Environments at random whose every step is known, and their past in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from archive.episode_cutter import Choose, EpisodeCutter, read_episodes
from archive.episodes import Episode
from archive.recorded import Gap, Recorded, Source, SourceInfo
from schemas.experiment import from_values
from schemas.records import (
    NO_POLICY,
    EnvDescription,
    PolicyRef,
    SourceRef,
    SpaceField,
    StreamEnd,
    Unroll,
)
from schemas.tensors import pack, pack_map

SPACES = EnvDescription(
    env_id="CartPole-v1",
    observation=(
        SpaceField(
            "", "box", "<f4", (2,), pack(np.full(2, -1e9, "<f4")),
            pack(np.full(2, 1e9, "<f4")),
        ),
    ),
    action=(SpaceField("", "discrete", "<i8", (), n=(1 << 40,), start=(0,)),),
    max_episode_steps=None,
    vectorization="sync",
    versions={},
)  # fmt: skip


def experiment_named(name: str, env_id: str = "CartPole-v1", **spec):
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": name},
            "spec": {"env": {"id": env_id}, **spec},
        }
    )


def episodes_of(
    source: Source, cutter: EpisodeCutter | None = None, choose: Choose = lambda r: None
) -> Iterator[Episode]:
    return read_episodes(source, source.bounds(), cutter or EpisodeCutter(), choose)


class MemorySource:
    """Records in lists, one for each partition; offsets leave room between them."""

    def __init__(
        self,
        partitions: Mapping[int, list[Unroll | StreamEnd]],
        name: str = "past",
        env: EnvDescription | None = SPACES,
        **spec,
    ) -> None:
        self.info = SourceInfo(
            experiment_named(name, **spec),
            "r1",
            f"rollstream.{name}.trajectories",
            "topic-id",
            env,
        )
        self._records = {
            partition: [
                Recorded(
                    SourceRef(self.info.topic, partition, 2 * i), 1_000 + i, record
                )
                for i, record in enumerate(records)
            ]
            for partition, records in partitions.items()
        }

    def bounds(self) -> Mapping[int, tuple[int, int]]:
        return {p: (0, 2 * len(records)) for p, records in self._records.items()}

    def gaps(self) -> list[Gap]:
        return []

    def read(self, partition: int, first: int, end: int) -> Iterator[Recorded]:
        for recorded in self._records[partition]:
            if first <= recorded.address.offset < end:
                yield recorded

    def close(self) -> None:
        pass


@dataclass
class Told:
    """What an environment did in one episode, step by step, and where."""

    rows: list[int] = field(default_factory=list)
    observations: list[np.ndarray] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    policies: list[PolicyRef] = field(default_factory=list)
    ending: str = ""
    is_spoilt: bool = False
    """A step of it has no reward, and it goes on."""


class World:
    """One stream of B environments; it keeps an account of each episode."""

    def __init__(
        self, seed: int, worker: str = "w0", incarnation: int = 0, num_envs: int = 3
    ) -> None:
        self.rng = np.random.default_rng([seed, incarnation])
        self.worker, self.incarnation, self.num_envs = worker, incarnation, num_envs
        self.sequence = self.step = 0
        self.policy = NO_POLICY
        self.observed = [self._new() for _ in range(num_envs)]
        self.numbers = [0] * num_envs
        self.is_over = [False] * num_envs
        self.told: dict[tuple[int, int], Told] = {}
        self.first_steps: list[int] = []
        for env in range(num_envs):
            self._episode(env).observations.append(self.observed[env])

    def _new(self):
        return self.rng.random(2, np.float32)

    def _episode(self, env: int) -> Told:
        return self.told.setdefault((env, self.numbers[env]), Told())

    def unroll(self, num_steps: int, *, last: bool = False) -> Unroll:
        """Do so many vector steps; now and then by another policy."""
        if self.rng.random() < 0.3:
            self.policy = PolicyRef(1, max(self.policy.version, 0) + 1)
        shape = (num_steps, self.num_envs)
        observations = np.zeros((num_steps + 1, self.num_envs, 2), np.float32)
        actions = self.rng.integers(0, 1 << 40, shape)
        rewards = np.zeros(shape)
        flags = np.zeros((3, *shape), np.bool_)
        episodes = np.array(self.numbers, "<i8")
        for t in range(num_steps):
            for env in range(self.num_envs):
                observations[t, env] = self.observed[env]
                row = self._do(env, self.step + t, int(actions[t, env]))
                rewards[t, env], *flags[:, t, env] = row
        observations[-1] = self.observed
        record = Unroll(
            "past", "r1", self.worker, self.incarnation, self.sequence, self.step,
            num_steps, self.num_envs, self.policy, 1_700_000_000_000 + self.step, last,
            pack_map({"": observations}), pack_map({"": actions}), pack(rewards),
            *(pack(each) for each in flags), pack(episodes), {}, {}, {},
        )  # fmt: skip
        self.first_steps.append(self.step)
        self.sequence += 1
        self.step += num_steps
        return record

    def _do(self, env: int, row: int, action: int):
        """Return reward, terminated, truncated, valid of one row of one environment."""
        episode, chance = self._episode(env), self.rng.random()
        episode.rows.append(row)
        if self.is_over[env]:  # this is the reset row
            if chance < 0.1:  # and the reset fails
                self.numbers[env] += 1
                return 0.0, False, True, False
            self.observed[env], self.is_over[env] = self._new(), False
            episode.observations.append(self.observed[env])
            return 0.0, False, False, False
        if chance < 0.04:
            self._end(env, "failed")
            return 0.0, False, True, False
        self.observed[env] = self._new()
        if chance < 0.08:  # no reward; half the time it ends as well
            if chance < 0.06:
                self._end(env, "failed")
                return np.nan, True, False, False
            episode.is_spoilt = True
            return np.nan, False, False, False
        episode.observations.append(self.observed[env])
        episode.actions.append(action)
        episode.rewards.append(reward := float(self.rng.normal()))
        episode.policies.append(self.policy)
        terminated, truncated = 0.08 <= chance < 0.18, 0.15 <= chance < 0.25
        if terminated or truncated:
            self._end(env, "T" * terminated + "C" * truncated)
        return reward, terminated, truncated, True

    def _end(self, env: int, ending: str) -> None:
        self._episode(env).ending = ending
        self.numbers[env] += 1
        self.is_over[env] = True
