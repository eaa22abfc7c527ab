"""A policy and environments -> the returns of a fixed number of greedy episodes."""

from __future__ import annotations

import math
from collections.abc import Callable
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
    An episode cut by a crash does not count; the environment's next one does.
    ``must_stop`` is asked after each step; ``begins`` is given what makes them.

    Returns:
        all B·⌈episodes / B⌉ of them, or None when told to stop.
    """
    num_envs = environments.num_envs
    quota = math.ceil(episodes / num_envs)
    rollout = Rollout(environments, seeds)
    begins(rollout)
    done: list[list[tuple[float, int]]] = [[] for _ in range(num_envs)]
    missing = num_envs * quota
    while missing:
        if must_stop():
            return None
        finished = rollout.collect(actor, _CHUNK_STEPS, must_stop).finished
        columns = (finished[name] for name in ("envs", "returns", "lengths", "endings"))
        for env, return_, length, ending in zip(*columns, strict=True):
            if ending != ABORTED and len(done[env]) < quota:
                done[env].append((return_, length))
                missing -= 1
    returns, lengths = zip(*(episode for env in done for episode in env), strict=True)
    return EvaluationResult(np.array(returns, "<f8"), np.array(lengths, "<i4"))
