"""Do the parts of an experiment and its environment fit together? Pure."""

from __future__ import annotations

from schemas.errors import SchemaError
from schemas.experiment import Spec, SpecError
from schemas.records import EnvDescription
from schemas.sizes import field_bytes, flat_size, longest_unroll, most_steps, stacked

# What the replay buffer keeps of a transition beside observation and action.
_ROW_BYTES = 64
# A smaller buffer would hold little but what waits for its bootstrap observation.
_LEAST_UNROLLS = 4
# Reset rows take slots too, and are never sampled.
_MOST_SAMPLABLE = 0.75


def check_fit(spec: Spec, env: EnvDescription, memory_bytes: int | None = None) -> None:
    """Raise SpecError unless the experiment can run with this environment.

    Args:
        spec: the experiment's.
        env: as a worker would describe it, frames unstacked.
        memory_bytes: what this machine has; None: unknown.
    """
    problems = [
        *_actions(spec, env),
        *_scale(spec, env),
        *_unrolls(spec, env),
        *_min_size(spec),
        *_goal(spec),
    ]
    if memory_bytes is not None:
        problems += _memory(spec, env, memory_bytes)
    if problems:
        raise SpecError(problems)


def first_unroll_length(spec: Spec, env: EnvDescription) -> int:
    """Return how many steps a worker's unrolls have, at first: fewer may fit a record.

    Raises:
        SchemaError: not even one is sure to fit.
    """
    num_envs = spec.workers.envs_per_worker
    longest_unroll(env.observation, env.action, num_envs)
    most = most_steps(env.observation, env.action, num_envs)
    return min(spec.workers.unroll_length, most)


def buffer_bytes(spec: Spec, env: EnvDescription) -> int:
    """Return about how much memory a full replay buffer takes."""
    row = sum(map(field_bytes, (*env.observation, *env.action)))
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
    seen = [stacked(field, spec.env.frame_stack) for field in env.observation]
    expected = sum(map(flat_size, seen))
    if not scale or len(scale) in (1, expected):
        return []
    return [
        f"spec.learner.network.observationScale: expected 1 or {expected} numbers for "
        f"{env.env_id}, found {len(scale)}"
    ]


def _unrolls(spec: Spec, env: EnvDescription) -> list[str]:
    """Refuse what a worker would refuse, and what the learner could not keep."""
    try:
        steps = first_unroll_length(spec, env)
    except SchemaError as exc:
        return [f"spec.workers.envsPerWorker: {exc}"]
    rows = steps * spec.workers.envs_per_worker
    least, capacity = _LEAST_UNROLLS * rows, spec.learner.replay.capacity
    if capacity >= least:
        return []
    return [
        f"spec.learner.replay.capacity: expected at least {least:,}, {_LEAST_UNROLLS} "
        f"unrolls of {rows:,} rows (unrollLength x envsPerWorker), found {capacity:,}"
    ]


def _min_size(spec: Spec) -> list[str]:
    replay = spec.learner.replay
    most = int(_MOST_SAMPLABLE * replay.capacity)
    if replay.min_size <= most:
        return []
    return [
        f"spec.learner.replay.minSize: expected at most {most:,}, "
        f"{_MOST_SAMPLABLE:.0%} of capacity, found {replay.min_size:,}: reset rows "
        "take slots too"
    ]


def _goal(spec: Spec) -> list[str]:
    if spec.stop.mean_return is None or spec.evaluator.replicas:
        return []
    return [
        "spec.evaluator.replicas: expected 1 to find out whether stop.meanReturn "
        f"{spec.stop.mean_return:g} is reached, found 0"
    ]


def _memory(spec: Spec, env: EnvDescription, memory_bytes: int) -> list[str]:
    needed = buffer_bytes(spec, env)
    if needed <= memory_bytes:
        return []
    return [
        f"spec.learner.replay.capacity: expected a buffer within {memory_bytes:,} "
        f"bytes of memory, found {needed:,} for {spec.learner.replay.capacity:,} rows"
    ]
