"""A policy and environments -> the returns of greedy episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from producers.acting import Actor
from producers.episodes import ABORTED
from producers.guarded_env import Environments
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from schemas.tensors import Array

_CHUNK_STEPS = 32


@dataclass(frozen=True)
class EvaluationResult:
    """Complete episodes, in order of their environments.

    Attributes:
        returns: [N] float64, raw.
        lengths: [N] int32.
    """

    returns: Array
    lengths: Array


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode from its reset to its end.

    Attributes:
        env: which environment.
        number: of the environment's episodes.
        return_: the sum of its rewards, raw.
        length: in steps.
    """

    env: int
    number: int
    return_: float
    length: int


def play_episodes(
    environments: Environments,
    actor: Actor,
    seeds: StreamSeeds,
    must_stop: Callable[[], bool] = lambda: False,
    begins: Callable[[Rollout], None] = lambda rollout: None,
) -> Iterator[PlayedEpisode]:
    """Yield complete episodes as they end, until told to stop.

    An episode cut by a crash is left out; the environment's next one is not.
    ``must_stop`` is asked after each step; ``begins`` is given what makes them.
    """
    rollout = Rollout(environments, seeds)
    begins(rollout)
    while not must_stop():
        finished = rollout.collect(actor, _CHUNK_STEPS, must_stop).finished
        names = ("envs", "episodes", "returns", "lengths", "endings")
        columns = (finished[name].tolist() for name in names)
        for *episode, ending in zip(*columns, strict=True):
            if ending != ABORTED:
                yield PlayedEpisode(*episode)


def evaluate(
    environments: Environments,
    actor: Actor,
    seeds: StreamSeeds,
    episodes: int,
    must_stop: Callable[[], bool] = lambda: False,
    begins: Callable[[Rollout], None] = lambda rollout: None,
) -> EvaluationResult | None:
    """Run the first ⌈episodes / B⌉ episodes of each environment.

    A quota for each, for the first that happen to finish anywhere are the short ones.

    Returns:
        all B·⌈episodes / B⌉ of them, or None when told to stop.
    """
    num_envs = environments.num_envs
    quota = math.ceil(episodes / num_envs)
    done: list[list[PlayedEpisode]] = [[] for _ in range(num_envs)]
    missing = num_envs * quota
    for episode in play_episodes(environments, actor, seeds, must_stop, begins):
        if len(done[episode.env]) < quota:
            done[episode.env].append(episode)
            missing -= 1
        if not missing:
            break
    if missing:
        return None
    episodes_done = [episode for each in done for episode in each]
    return EvaluationResult(
        np.array([episode.return_ for episode in episodes_done], "<f8"),
        np.array([episode.length for episode in episodes_done], "<i4"),
    )
