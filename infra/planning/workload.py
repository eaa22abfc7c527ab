"""A spec and what is known of its environment -> the work of a step; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from infra.planning.network_cost import (
    acting_cost,
    gradient_steps,
    training_flops,
)
from schemas.experiment import Spec
from schemas.fit import buffer_bytes, first_unroll_length
from schemas.records import EnvDescription, SpaceField
from schemas.sizes import POLICY_INLINE_BYTES, RETURN_BYTES, field_bytes, stacked

_REWARD_BYTES, _FLAGS_BYTES, _EPISODE_BYTES = 8, 3, 8
_FLOAT_BYTES = 4
# Steps, where an environment does not say.
_LONG_EPISODE = 1_000


@dataclass(frozen=True)
class EnvFacts:
    """What an environment costs, and what its records come to.

    Attributes:
        us_per_step: CPU microseconds of one environment's step.
        pack_us: CPU microseconds of packing a step's observation for the wire.
        valid_share: of the rows those that are steps, not resets.
        packed_share: size of its observations on the wire / in memory.
        source: who says so, in a few words.
    """

    us_per_step: float
    pack_us: float = 0.0
    valid_share: float = 1.0
    packed_share: float = 1.0
    source: str = "said"


@dataclass(frozen=True)
class Workload:
    """The work of an experiment; steps are valid rows, of all environments.

    Attributes:
        workers: processes; 0: none.
        envs_per_worker: B.
        unroll: T of a record that fits its topic.
        env_us: CPU microseconds of an environment's step, its observation packed.
        acting_flops: operations of the policy for a step.
        trajectory_bytes: of a step, on the wire.
        replay_bytes: of a step, with what processors add.
        opened_bytes: of a step's observation, unpacked at the learner; 0: it is not
            packed.
        drawn_bytes: of the observations of a row that is drawn, stacked.
        policy_bytes: of a published version.
        policy_sharers: workers of a host, who fetch a version once together: 1 where
            it travels in a record that each reads.
        training_flops: operations of learning from a row once.
        samples_per_step: how often a row is learnt from.
        batch_size: rows of an update.
        gradient_steps: of the optimiser, an update.
        draws: whether rows are drawn from a buffer.
        buffer_bytes: of experience in the learner's memory, at most.
        buffer_rows: that have to stay on the log; 0: none.
        updates_per_policy: between versions, at least.
        policy_interval_s: between versions, at least.
        most_steps_per_s: of each worker, by the spec; infinite: no limit.
        partitions: of trajectories, and of replay.
        disk_budget: bytes, for both.
        processors: that the spec starts with, at most.
        is_credited: whether workers wait for the learner's credit.
        evaluators: 0 or 1.
        evaluator_envs: that it steps at once.
        evaluation_steps: of a version, where episodes are as long as they may be.
        every_versions: versions whose number it divides are evaluated.
    """

    workers: int
    envs_per_worker: int
    unroll: int
    env_us: float
    acting_flops: float
    trajectory_bytes: float
    replay_bytes: float
    opened_bytes: float
    drawn_bytes: float
    policy_bytes: int
    policy_sharers: int
    training_flops: float
    samples_per_step: float
    batch_size: int
    gradient_steps: float
    draws: bool
    buffer_bytes: int
    buffer_rows: int
    updates_per_policy: int
    policy_interval_s: float
    most_steps_per_s: float
    partitions: int
    disk_budget: int
    processors: int
    is_credited: bool
    evaluators: int
    evaluator_envs: int
    evaluation_steps: int
    every_versions: int

    @property
    def num_envs(self) -> int:
        """The environments of all workers."""
        return self.workers * self.envs_per_worker

    @property
    def steps_per_record(self) -> int:
        """The rows of a record, T·B."""
        return self.unroll * self.envs_per_worker


def workload_of(
    spec: Spec, env: EnvDescription, facts: EnvFacts, workers_per_host: int = 1
) -> Workload:
    """Return the work that a spec makes with its environment.

    Args:
        spec: the experiment's.
        env: as a worker would describe it, frames unstacked.
        facts: what it costs.
        workers_per_host: at least; who shares the parts of large versions.

    Raises:
        SchemaError: not one step fits a record.
    """
    workers, learner = spec.workers, spec.learner
    seen = [stacked(field, spec.env.frame_stack) for field in env.observation]
    (action, *_) = env.action
    acting = acting_cost(learner, seen, action)
    is_half = learner.policy_precision == "half"
    policy_bytes = acting.parameters * _FLOAT_BYTES // (2 if is_half else 1)
    unroll = first_unroll_length(spec, env)
    step_bytes = trajectory_bytes(spec, env, facts, unroll)
    seen_bytes = sum(map(field_bytes, env.observation))
    is_on_policy = learner.traits.is_on_policy
    limit = workers.max_env_steps_per_s
    return Workload(
        workers=workers.most_replicas,
        envs_per_worker=workers.envs_per_worker,
        unroll=unroll,
        env_us=facts.us_per_step + facts.pack_us,
        acting_flops=acting.flops,
        trajectory_bytes=step_bytes,
        replay_bytes=step_bytes + RETURN_BYTES / facts.valid_share,
        opened_bytes=seen_bytes if facts.packed_share < 1 else 0.0,
        drawn_bytes=2 * seen_bytes * spec.env.frame_stack,
        policy_bytes=policy_bytes,
        policy_sharers=workers_per_host if policy_bytes > POLICY_INLINE_BYTES else 1,
        training_flops=training_flops(learner, seen, action),
        samples_per_step=learner.samples_per_insert,
        batch_size=learner.batch_size,
        gradient_steps=gradient_steps(learner),
        draws=not is_on_policy,
        buffer_bytes=buffer_bytes(spec, env),
        buffer_rows=0 if is_on_policy else learner.replay.capacity,
        updates_per_policy=learner.updates_per_policy,
        policy_interval_s=learner.policy_interval_ms / 1000,
        most_steps_per_s=limit or math.inf,
        partitions=spec.topics.partitions,
        disk_budget=spec.topics.disk_budget,
        processors=spec.processor.most_replicas,
        is_credited=spec.flow.mode == "credit",
        evaluators=spec.evaluator.replicas,
        evaluator_envs=spec.evaluator.envs,
        evaluation_steps=spec.evaluator.episodes
        * (env.max_episode_steps or _LONG_EPISODE),
        every_versions=spec.evaluator.every_versions,
    )


def trajectory_bytes(
    spec: Spec, env: EnvDescription, facts: EnvFacts, unroll: int
) -> float:
    """Return the bytes of a valid step in the topic of trajectories.

    A record has one observation more than steps, and resets are rows too.
    """
    ends = (unroll + 1) / unroll
    observation = sum(map(field_bytes, env.observation)) * ends * facts.packed_share
    action = sum(map(field_bytes, env.action))
    lstm = spec.learner.network.lstm
    states = 2 * _FLOAT_BYTES * lstm / unroll  # h and c of the first row
    row = observation + action + _REWARD_BYTES + _FLAGS_BYTES + states
    row += _behaviour_bytes(spec, env.action, ends) + _EPISODE_BYTES / unroll
    return row / facts.valid_share


def _behaviour_bytes(spec: Spec, action: tuple[SpaceField, ...], ends: float) -> float:
    """Return the bytes that a row has of the policy that acted."""
    learner = spec.learner
    if learner.algorithm in ("dqn", "r2d2"):
        return _FLOAT_BYTES * (1 + ends)  # of the action taken, and of the best
    sample = sum(
        _FLOAT_BYTES * math.prod(field.shape) for field in action if field.kind == "box"
    )
    value = _FLOAT_BYTES * ends if learner.traits.is_on_policy else 0.0
    return sample + _FLOAT_BYTES + value
