"""Do an experiment's algorithm and its environment fit? Pure."""

from __future__ import annotations

import math

import numpy as np

from schemas.experiment import Spec, SpecError
from schemas.records import EnvDescription, SpaceField

# What the replay buffer keeps of a transition beside observation and action.
_ROW_BYTES = 64


def check_fit(spec: Spec, env: EnvDescription, memory_bytes: int | None = None) -> None:
    """Raise SpecError unless the experiment can run with this environment.

    Args:
        spec: the experiment's.
        env: as a worker would describe it, frames unstacked.
        memory_bytes: what this machine has; None: unknown.
    """
    problems = [*_actions(spec, env), *_scale(spec, env), *_size(spec, env)]
    if memory_bytes is not None:
        problems += _memory(spec, env, memory_bytes)
    if problems:
        raise SpecError(problems)


def buffer_bytes(spec: Spec, env: EnvDescription) -> int:
    """Return about how much memory a full replay buffer takes."""
    row = sum(map(_bytes, env.observation)) + sum(map(_bytes, env.action))
    return spec.learner.replay.capacity * (row + _ROW_BYTES)


def _actions(spec: Spec, env: EnvDescription) -> list[str]:
    kinds = [field.kind for field in env.action]
    if spec.learner.algorithm != "dqn" or kinds == ["discrete"]:
        return []
    return [
        f"spec.learner.algorithm: expected one discrete action for dqn, found "
        f"{', '.join(kinds)} in {env.env_id}"
    ]


def _scale(spec: Spec, env: EnvDescription) -> list[str]:
    scale = spec.learner.network.observation_scale
    sizes = [math.prod(field.shape) for field in env.observation]
    expected = sum(sizes) * spec.env.frame_stack
    if not scale or len(scale) in (1, expected):
        return []
    return [
        f"spec.learner.network.observationScale: expected 1 or {expected} numbers for "
        f"{env.env_id}, found {len(scale)}"
    ]


def _size(spec: Spec, env: EnvDescription) -> list[str]:
    limit = 8 << 20
    step = 2 * spec.workers.envs_per_worker * sum(map(_bytes, env.observation))
    if step <= limit:
        return []
    return [
        f"spec.workers.envsPerWorker: expected two steps of observations within "
        f"{limit} bytes, found {step} with {spec.workers.envs_per_worker}"
    ]


def _memory(spec: Spec, env: EnvDescription, memory_bytes: int) -> list[str]:
    needed = buffer_bytes(spec, env)
    if needed <= memory_bytes:
        return []
    return [
        f"spec.learner.replay.capacity: expected a buffer within {memory_bytes:,} "
        f"bytes of memory, found {needed:,} for {spec.learner.replay.capacity:,} rows"
    ]


def _bytes(field: SpaceField) -> int:
    return math.prod(field.shape) * np.dtype(field.dtype).itemsize
