"""What an episode is, and how many there were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.records import PolicyRef
from schemas.tensors import Array


@dataclass(frozen=True)
class Episode:
    """What one environment did from a reset to an end, L >= 1 steps.

    Attributes:
        worker: ``w<index>``.
        incarnation: with the worker: the stream.
        env: which of its environments.
        number: 0, 1, ... of the environment within the stream.
        observations: by field, [L+1, ...].
        actions: by field, [L, ...].
        rewards: [L], raw.
        terminations: [L] bool.
        truncations: [L] bool; the last is True, too, where the next step failed.
        first_policy: the lowest that acted in it.
        last_policy: the highest.
        produced_at_ms: of the record that it ends in.
        failed: its environment crashed or hung in the step after its last one.
    """

    worker: str
    incarnation: int
    env: int
    number: int
    observations: Mapping[str, Array]
    actions: Mapping[str, Array]
    rewards: Array
    terminations: Array
    truncations: Array
    first_policy: PolicyRef
    last_policy: PolicyRef
    produced_at_ms: int
    failed: bool

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(slots=True)
class EpisodeCounts:
    """What became of the episodes, and of their steps.

    Attributes:
        episodes: whole ones.
        env_steps: in those.
        not_chosen: whole ones of which not all is wanted.
        broken: a part is missing, or not valid.
        unfinished: their streams end before them.
    """

    episodes: int = 0
    env_steps: int = 0
    not_chosen: int = 0
    broken: int = 0
    unfinished: int = 0
