"""The parts of a spec that say how experience is made, and with what returns."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from schemas.encoding_spec import EncodingSpec
from schemas.role_specs import ElasticSpec, RoleSpec, ScalingSpec
from schemas.spec_part import JsonValue, Part, list_to_tuple

ENV_ID = r"^([A-Za-z0-9_.\-]+/)?[A-Za-z0-9_.\-]+-v[0-9]+$"


class Wrapper(Part):
    """A wrapper by its name in Gymnasium's or the machine's list, with arguments."""

    name: str = Field(
        description="Its name, as in gymnasium.wrappers.", examples=["TimeLimit"]
    )
    kwargs: dict[str, JsonValue] = Field(
        {}, description="Its arguments.", examples=[{"max_episode_steps": 200}]
    )


class EnvSpec(Part):
    """Which environment, and how many copies run as one.

    ``vectorization`` auto: the environment's own vector entry point when it has one,
    else sync. ``step_timeout_s``: a step that takes longer counts as hung.
    """

    id: str = Field(
        max_length=200,
        description="Gymnasium's id of it; modules that register others are the "
        "machine's: ROLLSTREAM_ENV_MODULES.",
        examples=["CartPole-v1"],
        json_schema_extra={"pattern": ENV_ID},
    )
    kwargs: dict[str, JsonValue] = Field(
        {},
        description="Arguments of its constructor.",
        examples=[{"is_slippery": True}],
    )
    wrappers: Annotated[tuple[Wrapper, ...], BeforeValidator(list_to_tuple)] = Field(
        (), description="Wrappers, the innermost first."
    )
    frame_stack: int = Field(
        1, ge=1, le=16, description="Observations that the network sees at once."
    )
    vectorization: Literal["auto", "sync", "async", "vector_entry_point"] = Field(
        "auto",
        description="How the environments of a worker step together; auto: by their "
        "own vector entry point where there is one, else sync.",
    )
    step_timeout_s: float = Field(
        60.0, gt=0, description="Seconds after which a step counts as hung."
    )

    @field_validator("id")
    @classmethod
    def _is_an_id(cls, value: str) -> str:
        if re.fullmatch(ENV_ID, value):
            return value
        found = f"expected an id such as CartPole-v1 or ALE/Pong-v5, found {value!r}"
        if ":" in value:
            found += (
                ": no module is imported because a spec says so; name it in "
                "ROLLSTREAM_ENV_MODULES on each machine"
            )
        raise ValueError(found)

    @model_validator(mode="after")
    def _vector_takes_no_wrappers(self) -> EnvSpec:
        if self.vectorization == "vector_entry_point" and self.wrappers:
            raise ValueError(
                "wrappers: expected none with vector_entry_point, found "
                f"{len(self.wrappers)}: choose sync or async"
            )
        return self


class ExplorationSpec(Part):
    """Ape-X: env i of N acts at random with epsilon^(1 + alpha i / (N - 1)).

    N: the environments of all workers that there may be. Algorithms whose policies are
    distributions draw from those instead.
    """

    kind: Literal["epsilonLadder"] = Field(
        "epsilonLadder", description="How probabilities differ between environments."
    )
    epsilon: float = Field(
        0.4, ge=0, le=1, description="How often the first environment acts at random."
    )
    alpha: float = Field(
        7.0, ge=0, description="How much less often the last one does; 0: as often."
    )


class WorkersScaling(ScalingSpec):
    """When there are to be more workers, and when fewer."""

    learner_wait_ratio: float = Field(
        0.2,
        gt=0,
        lt=1,
        description="More workers above this share of time that the learner waits for "
        "experience.",
    )
    max_replay_lag: float = Field(
        32.0,
        gt=0,
        description="Fewer workers above this many records, a worker, that the learner "
        "has not read yet.",
    )
    max_policy_lag: float = Field(
        50.0,
        gt=0,
        description="Fewer workers when experience was made with policies this many "
        "versions old.",
    )


class WorkersSpec(ElasticSpec):
    """Env workers: ``replicas`` processes of B environments, T steps a record.

    ``max_env_steps_per_s``: of each worker; 0: as fast as it goes.
    """

    replicas: int = Field(
        1, ge=0, le=10_000, description="Processes; at the start, with min and max."
    )
    envs_per_worker: int = Field(
        16, ge=1, le=65_536, description="Environments in each."
    )
    unroll_length: int = Field(
        32, ge=1, le=10_000, description="Steps of each environment in a record."
    )
    max_env_steps_per_s: float = Field(
        0.0,
        ge=0,
        description="Steps per second of all environments of a worker; 0: no limit.",
    )
    exploration: ExplorationSpec = Field(
        ExplorationSpec(),
        description="How often environments act at random, where an algorithm learns "
        "values of actions.",
    )
    encoding: EncodingSpec = Field(
        EncodingSpec(), description="How observations are packed for the log."
    )
    scaling: WorkersScaling = Field(
        WorkersScaling(), description="When there are more or fewer; with min and max."
    )


class ProcessorScaling(ScalingSpec):
    """When there are to be more processors."""

    max_lag: float = Field(
        64.0,
        gt=0,
        description="More processors above this many records, a processor, that wait "
        "for one.",
    )


class ProcessorSpec(ElasticSpec):
    """Stream processors: what returns they compute."""

    replicas: int = Field(
        1, ge=1, le=10_000, description="Processes; at the start, with min and max."
    )
    n_step: int = Field(3, ge=1, le=1_000, description="Most rewards in a return.")
    gamma: float = Field(0.99, ge=0, le=1, description="Discount of a step.")
    reward_scale: float = Field(
        1.0, gt=0, description="What rewards are multiplied by in returns."
    )
    priority_epsilon: float = Field(
        1e-6, gt=0, description="Added to each first priority."
    )
    scaling: ProcessorScaling = Field(
        ProcessorScaling(), description="When there are more; with min and max."
    )


class EvaluatorSpec(RoleSpec):
    """Greedy episodes of one policy version at a time."""

    replicas: int = Field(1, ge=0, le=1, description="0: nobody evaluates.")
    episodes: int = Field(
        100, ge=1, le=10_000, description="Episodes of each version, without chance."
    )
    envs: int = Field(100, ge=1, le=10_000, description="Environments they are run in.")
    every_versions: int = Field(
        1,
        ge=1,
        le=1_000_000,
        description="Only versions whose number this divides are evaluated; of those "
        "that came while it was busy, the newest. When no other has come for 30 s: the "
        "newest, whatever its number.",
    )
