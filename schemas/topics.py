"""THE map: every topic, who writes it, who reads it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

EXPERIMENT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
PREFIX = "rollstream."

_DAY_MS = 24 * 3600 * 1000
# A compacted topic's active segment is never cleaned: small segments, cleaned early.
_COMPACT = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.05",
    "max.compaction.lag.ms": "900000",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the map.

    Attributes:
        suffix: ``rollstream.<suffix>``, or ``rollstream.<experiment>.<suffix>``.
        key: what a record's key says.
        records: the record types of its values.
        cleanup: ``compact`` or ``delete``.
        written_by: roles.
        read_by: roles.
        per_experiment: one for each experiment.
        partitioned: as many partitions as the spec says; else one.
        config: settings beyond those that every topic has.
    """

    suffix: str
    key: str
    records: tuple[str, ...]
    cleanup: str
    written_by: tuple[str, ...]
    read_by: tuple[str, ...]
    per_experiment: bool = True
    partitioned: bool = False
    config: Mapping[str, str] = field(default_factory=dict)


def _retain(ms: int = -1, **more: int) -> dict[str, str]:
    settings = {"retention.ms": ms, **{k.replace("_", "."): v for k, v in more.items()}}
    return {"cleanup.policy": "delete"} | {k: str(v) for k, v in settings.items()}


EXPERIMENTS = Topic(
    "experiments", "experiment", ("ExperimentSpec",), "compact",
    ("cli", "agent"), ("cli", "agent", "every role"), per_experiment=False,
    config=_COMPACT,
)  # fmt: skip
STATUS = Topic(
    "status", "experiment/role/index", ("RoleStatus",), "compact",
    ("cli", "agent"), ("cli", "agent"), per_experiment=False, config=_COMPACT,
)  # fmt: skip
SCHEMAS = Topic(
    "schemas", "schema id", ("schema text",), "delete",
    ("cli", "registry"), ("processor", "learner", "registry"), per_experiment=False,
    config=_retain(),
)  # fmt: skip
MEMBERS = Topic(
    "members", "role/index", ("Member",), "compact",
    ("every role",), ("learner", "worker"), config=_COMPACT,
)  # fmt: skip
TRAJECTORIES = Topic(
    "trajectories", "worker", ("Unroll", "StreamEnd"), "delete",
    ("worker", "replayer"), ("processor", "archiver", "replayer"), partitioned=True,
    config=_retain(7 * _DAY_MS, max_message_bytes=10 << 20),
)  # fmt: skip
REPLAY = Topic(
    "replay", "worker", ("TransitionBatch",), "delete",
    ("processor",), ("learner",), partitioned=True,
    config=_retain(7 * _DAY_MS, max_message_bytes=12 << 20),
)  # fmt: skip
POLICIES = Topic(
    "policies", "policy, best, graph",
    ("PolicyVersion", "PolicyGraph", "PolicyChunk"), "compact",
    ("learner", "evaluator"), ("worker", "evaluator", "cli"),
    config=_COMPACT | {"max.message.bytes": str(16 << 20)},
)  # fmt: skip
POLICY_CHUNKS = Topic(
    "policy-chunks", "chunk/<slot>/<i>", ("PolicyChunk",), "compact",
    ("learner", "evaluator"), ("worker", "evaluator", "cli"),
    config=_COMPACT | {"max.message.bytes": str(16 << 20)},
)  # fmt: skip
POLICY_HISTORY = Topic(
    "policy-history", "version", ("PolicyVersion",), "delete",
    ("learner", "evaluator"), ("cli",),
    config=_retain(retention_bytes=1 << 30, max_message_bytes=16 << 20),
)  # fmt: skip
CREDITS = Topic(
    "credits", "learner", ("Credit",), "delete", ("learner",), ("worker",),
    config=_retain(600_000, segment_ms=600_000),
)  # fmt: skip
METRICS = Topic(
    "metrics", "role/index", ("MetricsPoint", "EpisodesFinished", "Evaluation"),
    "delete", ("every role", "agent", "cli"), ("cli",),
    config=_retain(_DAY_MS),
)  # fmt: skip
EVENTS = Topic(
    "events", "role/index", ("Event",), "delete", ("every role", "agent", "cli"),
    ("cli",),
    config=_retain(30 * _DAY_MS),
)  # fmt: skip
DEAD_LETTERS = Topic(
    "dead-letters", "source topic", ("DeadLetter",), "delete",
    ("processor", "learner", "worker", "cli"), ("cli",), config=_retain(30 * _DAY_MS),
)  # fmt: skip
LINEAGE = Topic(
    "lineage", "replay/<source>, policy/<epoch>/<version>",
    ("ReplayProgress", "TrainedOn"), "compact",
    ("replayer", "learner", "cli"), ("replayer", "cli"), config=_COMPACT,
)  # fmt: skip

TOPICS = (
    EXPERIMENTS, STATUS, SCHEMAS, MEMBERS, TRAJECTORIES, REPLAY, POLICIES,
    POLICY_CHUNKS, POLICY_HISTORY, CREDITS, METRICS, EVENTS, DEAD_LETTERS, LINEAGE,
)  # fmt: skip


def check_name(experiment: str) -> str:
    """Return the name of an experiment, or raise ValueError with the rule."""
    if not EXPERIMENT_NAME.fullmatch(experiment):
        raise ValueError(
            "experiment name: expected 1 to 63 of a-z, 0-9 and inner '-', found "
            f"{experiment[:80]!r}"
        )
    return experiment


def topic_name(topic: Topic, experiment: str | None = None) -> str:
    """Return a topic's full name; ``experiment`` where there is one for each."""
    if not topic.per_experiment:
        return PREFIX + topic.suffix
    if experiment is None:
        raise ValueError(f"{topic.suffix}: expected an experiment's name, found none")
    return f"{PREFIX}{check_name(experiment)}.{topic.suffix}"


def group_name(experiment: str, role: str) -> str:
    """Return the consumer group of a role of an experiment."""
    return f"{PREFIX}{check_name(experiment)}.{role}"


def topic_config(topic: Topic) -> dict[str, str]:
    """Return the settings a topic is created with.

    LogAppendTime for all: with a producer's own clock, an old or fast one makes the
    broker delete or refuse records.
    """
    return {"message.timestamp.type": "LogAppendTime", **topic.config}


def worker_partition(index: int, partitions: int) -> int:
    """Return a worker's partition: hashing a handful of keys would load unevenly."""
    return index % partitions


def worker_name(index: int) -> str:
    """Return the name, and key, of a worker."""
    return f"w{index}"


def worker_index(worker: str) -> int:
    """Return the index in a worker's name."""
    if not re.fullmatch(r"w\d{1,9}", worker):
        raise ValueError(f"worker: expected w<index>, found {worker[:40]!r}")
    return int(worker[1:])
