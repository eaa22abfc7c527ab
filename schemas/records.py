"""The records on the wire, as frozen dataclasses with the fields of their Avro schema.

Shapes: T vector steps, B environments, time-major. Times are milliseconds since the
epoch, UTC, by the writer's clock; they order nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.tensors import Tensor

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, order=True)
class PolicyRef:
    """A policy's place in the order of all: by epoch, then version (-1, -1: none)."""

    epoch: int
    version: int


NO_POLICY = PolicyRef(-1, -1)


@dataclass(frozen=True, slots=True)
class SourceRef:
    """A record's address in the log."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class Unroll:
    """What one worker's B environments did in T consecutive vector steps.

    Vector environments autoreset in Gymnasium's NEXT_STEP mode: the row after an
    episode's end is the reset row, recorded with ``valid`` False. A step whose
    environment crashed, or whose reward is not finite, is not valid either.

    Attributes:
        experiment: its name.
        run_id: the run; ``--fresh`` starts another.
        worker: ``w<index>``.
        incarnation: the offset of the worker's Member record: unique and growing.
        sequence: 0, 1, 2, ... within (worker, incarnation), without holes.
        first_step: the vector step of row 0 within the incarnation, without holes.
        num_steps: T >= 1.
        num_envs: B >= 1.
        policy: the policy that acted; NO_POLICY when at random.
        produced_at_ms: when the last row was done.
        end_of_stream: no further record of this incarnation follows.
        observations: by field name, [T+1, B, ...]; "" for a plain space.
        actions: by field name, [T, B, ...], what the environment received.
        rewards: [T, B] float32 or float64, raw.
        terminated: [T, B] bool.
        truncated: [T, B] bool.
        valid: [T, B] bool.
        episodes: [B] int64, the episode number of row 0.
        states: recurrent state at row 0, [B, ...].
        behaviour: value columns (``q_max``, ``value``) [T+1, B]; ``q_taken``,
            ``log_prob`` [T, B], ``logits`` [T, B, A]; ``sample`` [T, B, ...] where it
            differs: a gaussian's own, before it was clipped or squashed to the bounds.
            ``log_prob`` is its density then.
        infos: whatever else is kept, [T, B, ...].
    """

    experiment: str
    run_id: str
    worker: str
    incarnation: int
    sequence: int
    first_step: int
    num_steps: int
    num_envs: int
    policy: PolicyRef
    produced_at_ms: int
    end_of_stream: bool
    observations: Tensors
    actions: Tensors
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    episodes: Tensor
    states: Tensors
    behaviour: Tensors
    infos: Tensors


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Closes every stream of ``worker`` whose incarnation is at most this one.

    Written by a worker that ends its stream between unrolls, and in the name of a dead
    one, under a new incarnation, by whoever found it dead.
    """

    experiment: str
    run_id: str
    worker: str
    incarnation: int
    reason: str
    produced_at_ms: int


@dataclass(frozen=True, slots=True)
class TransitionBatch:
    """Exactly the rows of one Unroll, with what a learner needs to learn from them.

    ``returns + discounts * V(observation at step + bootstrap_steps)`` is the n-step
    target; the last gamma is folded into ``discounts`` (0 after termination).

    Attributes:
        source: the Unroll's address.
        n_step: the largest number of rewards in a return.
        gamma: the discount per step.
        reward_scale: what rewards were multiplied by in ``returns``.
        returns: [T, B] float32, discounted and scaled sums of rewards.
        discounts: [T, B] float32, gamma^m, or 0 where the episode terminated.
        bootstrap_steps: [T, B] int32, m: 1 <= m <= n_step; 0 on rows not valid.
        priorities: [T, B] float32, |n-step TD error| + eps of the behaviour values;
            NaN where there are none.

    The other fields are the Unroll's, every tensor as it came.
    """

    experiment: str
    run_id: str
    worker: str
    incarnation: int
    sequence: int
    first_step: int
    num_steps: int
    num_envs: int
    policy: PolicyRef
    produced_at_ms: int
    end_of_stream: bool
    source: SourceRef
    n_step: int
    gamma: float
    reward_scale: float
    observations: Tensors
    actions: Tensors
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    episodes: Tensor
    states: Tensors
    behaviour: Tensors
    infos: Tensors
    returns: Tensor
    discounts: Tensor
    bootstrap_steps: Tensor
    priorities: Tensor


@dataclass(frozen=True, slots=True)
class SpaceField:
    """One leaf of an observation or action space.

    Attributes:
        name: the path to it ("camera/left"); "" for a plain space.
        kind: ``box``, ``discrete``, ``multi_discrete`` or ``multi_binary``.
        dtype: as in Tensor.
        shape: of one element.
        low: bounds of a box.
        high: bounds of a box.
        n: number of values: [n] of a discrete, the flat nvec of a multi_discrete.
        start: the first value of each.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    low: Tensor | None = None
    high: Tensor | None = None
    n: tuple[int, ...] = ()
    start: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EnvDescription:
    """What a learner must know of an environment; found once, by the first worker."""

    env_id: str
    observation: tuple[SpaceField, ...]
    action: tuple[SpaceField, ...]
    max_episode_steps: int | None
    vectorization: str
    versions: Mapping[str, str]

    def has_same_spaces(self, other: "EnvDescription") -> bool:
        """Whether records of these two environments have the same fields."""
        return (self.env_id, self.observation, self.action) == (
            other.env_id,
            other.observation,
            other.action,
        )


@dataclass(frozen=True, slots=True)
class Member:
    """A process that started; the record's offset is its incarnation (or epoch)."""

    experiment: str
    run_id: str
    role: str
    index: int
    host: str
    pid: int
    started_at_ms: int
    env: EnvDescription | None = None


@dataclass(frozen=True, slots=True)
class PolicyGraph:
    """An actor as an ONNX graph whose parameters and buffers are inputs.

    Inputs: ``obs/<name>`` in the space's own dtype, ``state/<name>``, ``param/<name>``.
    Outputs by head: ``q``; ``logits``, ``value``; ``mean``, ``log_std`` and, where it
    has one, ``value``; and ``next_state/<name>`` (ONNX allows no output the name of an
    input).

    Attributes:
        sha256: hex digest of ``onnx``.
        head: ``q``, ``categorical`` or ``gaussian``.
        exploration: ``epsilon_ladder`` of q; ``sample`` of the others, which draw from
            their own distribution; ``none``.
        exploration_options: its numbers: epsilon and alpha; of a gaussian ``squashed``,
            1: tanh of the sample is scaled to the action's bounds.
        observation: the fields that the graph takes.
        action: the fields that the head's action fills.
        states: recurrent state inputs, shapes of one environment.
    """

    experiment: str
    run_id: str
    epoch: int
    sha256: str
    onnx: bytes
    head: str
    exploration: str
    exploration_options: Mapping[str, float]
    observation: tuple[SpaceField, ...]
    action: tuple[SpaceField, ...]
    states: tuple[SpaceField, ...]
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """The parameters and buffers of one version, as safetensors bytes.

    Those of more than POLICY_INLINE_BYTES travel as PolicyChunk records under the keys
    ``chunk/<slot>/<i>``, and ``tensors`` is empty.

    Attributes:
        chunk_offsets: where the chunks are in the topic of chunks, in order. Without
            any, and with ``num_chunks``, it is of a version of rollstream that sent
            them to the topic of policies.
        tensors_bytes: of the tensors, whole; 0 where there are no offsets.
        num_parameters: numbers in them, buffers included; likewise.
        keyframe_offsets: of the chunks of an earlier version, of the same size, from
            which the tensors differ by what is in this one's chunks: see
            infra/policies/deltas.py. None: the chunks are the tensors.
        keyframe_sha256: of that version's tensors; "": there is none.
    """

    experiment: str
    run_id: str
    epoch: int
    version: int
    train_step: int
    graph_sha256: str
    graph_offset: int
    tensors: bytes
    tensors_sha256: str
    num_chunks: int
    slot: int
    created_at_ms: int
    chunk_offsets: tuple[int, ...] = ()
    tensors_bytes: int = 0
    num_parameters: int = 0
    keyframe_offsets: tuple[int, ...] = ()
    keyframe_sha256: str = ""


@dataclass(frozen=True, slots=True)
class PolicyChunk:
    """A part of a large PolicyVersion's tensors."""

    experiment: str
    run_id: str
    epoch: int
    version: int
    slot: int
    chunk: int
    data: bytes


@dataclass(frozen=True, slots=True)
class WorkerCredit:
    """How far one incarnation of a worker may step."""

    incarnation: int
    allowed_step: int


@dataclass(frozen=True, slots=True)
class Credit:
    """What a learner lets its workers do; workers take the maximum they have seen."""

    experiment: str
    run_id: str
    learner: str
    epoch: int
    min_policy: PolicyRef
    allowed: Mapping[str, WorkerCredit]
    produced_at_ms: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a consumer stands in one partition.

    Attributes:
        position: the next offset it will handle.
        committed: what it would read again from after a crash; -1 when nothing is.
        held: records handled but deliberately not acknowledged yet.
    """

    topic: str
    partition: int
    position: int
    committed: int
    held: int


@dataclass(frozen=True, slots=True)
class MetricsPoint:
    """A role's counters and gauges at a moment; without any: that it lives."""

    experiment: str
    run_id: str
    role: str
    index: int
    incarnation: int
    produced_at_ms: int
    values: Mapping[str, float]
    positions: tuple[Position, ...] = ()


@dataclass(frozen=True, slots=True)
class EpisodesFinished:
    """Episodes that ended since the last such record of this worker; columns [N].

    Attributes:
        envs: int32.
        episodes: int64, the number within (worker, incarnation, env).
        returns: float64, raw.
        lengths: int32, in steps.
        endings: int8: 0 terminated, 1 truncated, 2 aborted.
        versions: int64, the policy version that took the last step.
    """

    experiment: str
    run_id: str
    worker: str
    incarnation: int
    produced_at_ms: int
    envs: Tensor
    episodes: Tensor
    returns: Tensor
    lengths: Tensor
    endings: Tensor
    versions: Tensor


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Greedy episodes of one policy version on fresh seeds.

    Attributes:
        policy: which.
        train_step: the learner's updates when it was made.
        returns: [N] float64, raw.
        lengths: [N] int32.
        confirmation: a second round, on other seeds, after a first that passed.
    """

    experiment: str
    run_id: str
    policy: PolicyRef
    train_step: int
    returns: Tensor
    lengths: Tensor
    confirmation: bool
    produced_at_ms: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth telling a person, with its reason."""

    experiment: str
    run_id: str
    role: str
    index: int
    kind: str
    severity: str
    reason: str
    produced_at_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be read, and why; the first 64 kB of it."""

    experiment: str
    source: SourceRef
    reader: str
    error: str
    key: bytes
    value: bytes
    value_bytes: int
    produced_at_ms: int


@dataclass(frozen=True, slots=True)
class ExperimentSpec:
    """Desired state: ``spec`` is the experiment as canonical JSON.

    Attributes:
        replaces: the offset of the spec that this one was made from; -1: the first.
        managed_by: who starts its processes: ``run``, a `rollstream run` in somebody's
            terminal, or ``agents``.
    """

    experiment: str
    run_id: str
    spec: str
    replaces: int
    created_at_ms: int
    managed_by: str = "run"


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """Observed state of a role; of the whole experiment with role ``experiment``.

    Attributes:
        state: of a role ``running``, ``stopping``, ``backing-off``, ``failed`` (it is
            not started again) or ``stopped``; of the experiment what the leader says.
        summary: JSON, of a finished experiment.
    """

    experiment: str
    run_id: str
    role: str
    index: int
    state: str
    host: str
    pid: int
    restarts: int
    reason: str
    updated_at_ms: int
    summary: str | None = field(default=None)


@dataclass(frozen=True, slots=True)
class DataRange:
    """Unrolls of one partition of a topic of trajectories.

    Attributes:
        topic: of the unrolls.
        partition: likewise.
        first_offset: of the first of them.
        next_offset: behind the last of them; not all between must belong.
        env_steps: valid rows in them.
        first_policy: the lowest that acted in them.
        last_policy: the highest.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    env_steps: int
    first_policy: PolicyRef
    last_policy: PolicyRef


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How much of a past is in an experiment's trajectories; in one transaction.

    Attributes:
        experiment: what it is replayed into.
        run_id: of that.
        source: what is replayed: ``<experiment>/<run_id>@<topic id>``, the same for a
            topic and for its archive.
        source_experiment: whose experience it is.
        source_run_id: of which run.
        selection: what was chosen of it, as canonical JSON.
        data: by partition of the source what has been dealt with, and how many steps of
            it were chosen; addresses are the source's.
        blank_steps: rows that were sent without what is in them, as they were not
            chosen: streams have no holes.
        done: the source's end, as chosen, is reached.
    """

    experiment: str
    run_id: str
    source: str
    source_experiment: str
    source_run_id: str
    selection: str
    data: tuple[DataRange, ...]
    blank_steps: int
    done: bool
    updated_at_ms: int


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """What a policy has been trained on, as its learner counted it.

    Attributes:
        policy: the newest one published at the time of a checkpoint.
        train_step: the learner's updates by then.
        data: the unrolls that its batches were made of.
    """

    experiment: str
    run_id: str
    policy: PolicyRef
    train_step: int
    data: tuple[DataRange, ...]
    created_at_ms: int
