"""The part of a spec that says how it is learnt."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from schemas.past_specs import SourceSpec
from schemas.role_specs import RoleSpec
from schemas.spec_part import Part, list_to_tuple

BUILT_IN_ALGORITHMS = ("dqn",)


class NetworkSpec(Part):
    """An MLP of ``hidden`` layers on observations times ``observation_scale``."""

    hidden: Annotated[
        tuple[Annotated[int, Field(ge=1, le=65_536)], ...],
        BeforeValidator(list_to_tuple),
    ] = Field((128, 128), max_length=64, description="Units of each layer.")
    activation: Literal["relu", "tanh"] = Field("relu", description="Between layers.")
    dueling: bool = Field(
        False, description="Whether value and advantages have heads of their own."
    )
    observation_scale: Annotated[tuple[float, ...], BeforeValidator(list_to_tuple)] = (
        Field(
            (),
            description="What observations are multiplied by: one number, or one for "
            "each input; none: 1.",
            examples=[[0.4167, 0.5, 4.7733, 0.5]],
        )
    )


class ReplaySpec(Part):
    """The replay buffer, in transitions, and its priorities."""

    capacity: int = Field(
        65_536, ge=1, le=100_000_000, description="Transitions that it holds."
    )
    min_size: int = Field(
        2_000, ge=1, description="Transitions before the first update."
    )
    alpha: float = Field(
        0.6, ge=0, le=1, description="Exponent of priorities; 0: all alike."
    )
    beta: float = Field(
        0.4, ge=0, le=1, description="Exponent of importance weights; 1: unbiased."
    )
    weights_normalised_by: Literal["buffer", "batch"] = Field(
        "buffer", description="Where the largest importance weight is looked for."
    )
    priority_epsilon: float = Field(
        1e-3, gt=0, description="Added to each priority that the learner finds."
    )


class LearnerSpec(RoleSpec):
    """The learner: algorithm, optimiser, how often things happen.

    ``algorithm``: one of BUILT_IN_ALGORITHMS, or one that a module of the machine's
    settings (ROLLSTREAM_LEARNER_MODULES) adds.
    ``on_expired``: what to do when the log no longer holds what comes next.
    """

    replicas: int = Field(1, ge=1, le=1, description="There is one.")
    algorithm: str = Field(
        "dqn",
        pattern=r"^[a-z0-9][a-z0-9-]{0,63}$",
        description="dqn, or one that ROLLSTREAM_LEARNER_MODULES of the machine adds.",
        examples=["dqn"],
    )
    network: NetworkSpec = Field(NetworkSpec(), description="What is learnt.")
    replay: ReplaySpec = Field(ReplaySpec(), description="What is learnt from.")
    sources: Annotated[tuple[SourceSpec, ...], BeforeValidator(list_to_tuple)] = Field(
        (),
        max_length=16,
        description="Whose transitions are learnt from, mixed by weight; none: only "
        "this experiment's.",
        examples=[[{"weight": 3}, {"experiment": "cartpole-past", "weight": 1}]],
    )
    samples_per_insert: float = Field(
        1.0, gt=0, description="How often a transition is learnt from, on average."
    )
    batch_size: int = Field(
        128, ge=1, le=65_536, description="Transitions of an update."
    )
    learning_rate: float = Field(1e-3, gt=0, description="Adam's step size.")
    adam_epsilon: float = Field(1e-5, gt=0, description="Adam's epsilon.")
    max_grad_norm: float = Field(
        10.0, gt=0, description="Gradients of a larger norm are scaled down to it."
    )
    double: bool = Field(True, description="Double DQN.")
    target_update_period: int = Field(
        50, ge=1, description="Updates between copies to the target network."
    )
    publish_every_updates: int = Field(
        16, ge=1, description="Updates between policies, at least."
    )
    publish_interval_ms: int = Field(
        200, ge=0, description="Milliseconds between policies, at least."
    )
    checkpoint_interval_s: float = Field(
        10.0, gt=0, description="Seconds between checkpoints."
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:[0-9]{1,3})?)$",
        description="auto, cpu, cuda or cuda:1; auto: a GPU where there is one.",
        examples=["cpu"],
    )
    on_expired: Literal["earliest", "fail"] = Field(
        "earliest", description="When what comes next was deleted unread."
    )

    @model_validator(mode="after")
    def _sources_differ(self) -> LearnerSpec:
        names = [source.experiment for source in self.sources]
        twice = {str(name or "this one") for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(
                f"sources: expected each experiment once, found {min(twice)} twice"
            )
        return self
