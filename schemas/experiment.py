"""What an experiment IS: the spec that people write and the control topic carries.

Keys are camelCase, as in Kubernetes; times carry their unit in the name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from schemas.alert_specs import AlertsSpec
from schemas.experience_specs import (
    EnvSpec,
    EvaluatorSpec,
    ProcessorSpec,
    WorkersSpec,
    Wrapper,
)
from schemas.learner_specs import (
    BUILT_IN_ALGORITHMS,
    LearnerSpec,
    NetworkSpec,
    ReplaySpec,
)
from schemas.past_specs import PastSpec
from schemas.plain_values import MAX_SPEC, check_plain, show
from schemas.refusals import refusals
from schemas.spec_part import (
    MAX_DISK_BUDGET_BYTES,
    MIN_DISK_BUDGET_BYTES,
    Part,
    Size,
    SpecError,
)
from schemas.spec_text import load_json, load_text_file
from schemas.topics import EXPERIMENT_NAME, check_name

MAX_PARTITIONS = 1_024

__all__ = [
    "AlertsSpec",
    "EnvSpec",
    "Experiment",
    "FlowSpec",
    "HealthSpec",
    "LearnerSpec",
    "NetworkSpec",
    "PastSpec",
    "ProcessorSpec",
    "ReplaySpec",
    "Spec",
    "SpecError",
    "StopSpec",
    "TopicsSpec",
    "WorkersSpec",
    "Wrapper",
    "check_algorithm",
    "from_values",
    "load_file",
    "load_values",
    "parse_json",
]


class FlowSpec(Part):
    """Who waits for whom: ``credit`` from the learner, or ``free``.

    ``window``: unrolls in flight for each worker; 0: measured.
    """

    mode: Literal["credit", "free"] = Field(
        "credit",
        description="credit: workers wait for the learner; free: for nobody.",
    )
    window: int = Field(
        0, ge=0, description="Unrolls in flight for each worker; 0: measured."
    )


class TopicsSpec(Part):
    """The experiment's topics; the number of partitions is for life."""

    partitions: int = Field(
        8,
        ge=1,
        le=MAX_PARTITIONS,
        description="Of the big topics; cannot be changed later.",
    )
    disk_budget: Size = Field(
        20 * 10**9,
        ge=MIN_DISK_BUDGET_BYTES,
        le=MAX_DISK_BUDGET_BYTES,
        description="Bytes on each broker that the big topics may take.",
        examples=["20GB"],
    )


class HealthSpec(Part):
    """When a role counts as dead or stuck, and how often it is started again."""

    dead_after_s: float = Field(
        10.0, ge=3, le=3_600, description="Seconds without a heartbeat; one comes in 2."
    )
    stuck_after_s: float = Field(
        60.0,
        ge=1,
        le=86_400,
        description="Seconds without progress while there is something to do.",
    )
    max_failures: int = Field(
        5,
        ge=1,
        le=1_000,
        description="Failures in a row after which the experiment is degraded.",
    )


class StopSpec(Part):
    """When it is finished: whichever comes first; nothing: never."""

    env_steps: int | None = Field(
        None, ge=1, description="Steps of all environments.", examples=[3_000_000]
    )
    mean_return: float | None = Field(
        None, description="Mean return of an evaluation, confirmed.", examples=[475]
    )
    wall_s: float | None = Field(
        None, gt=0, description="Seconds since the launch.", examples=[600]
    )


class Spec(Part):
    """The experiment's parts."""

    seed: int = Field(
        1, ge=0, lt=2**63, description="Of networks, sampling and environments."
    )
    env: EnvSpec = Field(description="Which environment.")
    workers: WorkersSpec = Field(WorkersSpec(), description="Who steps environments.")
    processor: ProcessorSpec = Field(
        ProcessorSpec(), description="Who computes returns and priorities."
    )
    learner: LearnerSpec = Field(LearnerSpec(), description="Who learns.")
    evaluator: EvaluatorSpec = Field(
        EvaluatorSpec(), description="Who finds out how good policies are."
    )
    past: PastSpec = Field(
        PastSpec(), description="Recorded experience that is replayed into it."
    )
    archive: bool = Field(
        False, description="Whether all trajectories are kept as Parquet files."
    )
    flow: FlowSpec = Field(FlowSpec(), description="Who waits for whom.")
    topics: TopicsSpec = Field(TopicsSpec(), description="Its topics.")
    stop: StopSpec = Field(
        StopSpec(), description="When it is finished: whichever comes first."
    )
    health: HealthSpec = Field(
        HealthSpec(), description="When processes are started again."
    )
    alerts: AlertsSpec = Field(
        AlertsSpec(), description="When a person is told that something is wrong."
    )
    state: Literal["running", "paused", "stopped"] = Field(
        "running", description="What is wanted; stopped: no process."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Spec:
        replay, learner = self.learner.replay, self.learner
        if learner.traits.is_on_policy and self.processor.n_step != 1:
            raise ValueError(
                f"processor.nStep: expected 1 for {learner.algorithm}, which sums "
                f"rewards itself, found {self.processor.n_step}"
            )
        has_buffer = not learner.traits.is_on_policy
        limit = self.stop.env_steps
        if not has_buffer and limit is not None and learner.batch_size > limit:
            raise ValueError(
                f"learner.batchSize: expected at most stop.envSteps {limit}, found "
                f"{learner.batch_size}: no update would ever be made"
            )
        if has_buffer and replay.min_size > replay.capacity:
            raise ValueError(
                "learner.replay.minSize: expected at most capacity "
                f"{replay.capacity}, found {replay.min_size}"
            )
        if has_buffer and learner.batch_size > replay.capacity:
            raise ValueError(
                "learner.batchSize: expected at most learner.replay.capacity "
                f"{replay.capacity}, found {learner.batch_size}"
            )
        if self.past.is_set and self.workers.most_replicas > 0:
            raise ValueError(
                "workers.replicas: expected 0 beside past, whose steps keep their "
                f"workers' names, found {self.workers.most_replicas}: learn from both "
                "with learner.sources"
            )
        if (self.processor.max or 0) > self.topics.partitions:
            raise ValueError(
                "processor.max: expected at most topics.partitions "
                f"{self.topics.partitions}, found {self.processor.max}: a partition "
                "has one processor"
            )
        return self


class Metadata(Part):
    """The experiment's name."""

    name: str = Field(
        description="Its name, in topics too: 1 to 63 of a-z, 0-9 and inner '-'.",
        examples=["cartpole-dqn"],
        json_schema_extra={"pattern": f"^{EXPERIMENT_NAME.pattern}$"},
    )

    @field_validator("name")
    @classmethod
    def _is_a_topic_part(cls, value: str) -> str:
        return check_name(value)


class Experiment(Part):
    """An experiment: what ``rollstream run`` and ``launch`` take."""

    api_version: Literal["rollstream/v1"] = Field(description="Of this format.")
    kind: Literal["Experiment"] = Field(description="What the file describes.")
    metadata: Metadata = Field(description="What it is called.")
    spec: Spec = Field(description="What it is.")

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    def to_json(self) -> str:
        """Return the canonical JSON: keys sorted, every default spelt out."""
        return json.dumps(
            self.model_dump(mode="json", by_alias=True),
            sort_keys=True,
            separators=(",", ":"),
        )


def parse_json(text: str) -> Experiment:
    """Return the experiment of a record's JSON; raises SpecError."""
    return from_values(load_json(text))


def load_file(path: Path) -> Experiment:
    """Return the experiment in a YAML or JSON file; raises SpecError."""
    return from_values(load_values(path))


def load_values(path: Path) -> dict[str, Any]:
    """Return what a YAML or JSON file holds, unchecked; raises SpecError."""
    values = load_text_file(path)
    if not isinstance(values, dict):
        raise SpecError([f"{path}: expected a mapping, found {show(values)}"])
    return values


def from_values(values: Any) -> Experiment:
    """Return the experiment that plain values (dicts, lists) describe.

    Raises:
        SpecError: naming each path, what was expected and what was found.
    """
    check_plain(values)
    if not isinstance(values, dict):
        raise SpecError([f"expected a mapping, found {show(values)}"])
    try:
        experiment = Experiment.model_validate(values, by_alias=True, by_name=False)
    except ValidationError as exc:
        raise SpecError(refusals(exc, Experiment)) from None
    if (length := len(experiment.to_json())) > MAX_SPEC:
        raise SpecError(
            [f"expected a spec of at most {MAX_SPEC:,} characters, found {length:,}"]
        )
    return experiment


def check_algorithm(spec: Spec, has_modules: bool) -> None:
    """Raise SpecError when no module of this machine can know the algorithm."""
    name = spec.learner.algorithm
    if name not in BUILT_IN_ALGORITHMS and not has_modules:
        known = ", ".join(BUILT_IN_ALGORITHMS)
        raise SpecError(
            [
                f"spec.learner.algorithm: expected one of {known}, found {name!r} "
                "(ROLLSTREAM_LEARNER_MODULES may add others)"
            ]
        )
