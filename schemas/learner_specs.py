"""The part of a spec that says how it is learnt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from schemas.algorithm_specs import (
    DistributionSpec,
    ImpalaSpec,
    PolicyGradientSpec,
    PpoSpec,
    R2d2Spec,
    SacSpec,
)
from schemas.algorithms import BUILT_IN, Traits, traits_of, unread_keys
from schemas.past_specs import SourceSpec
from schemas.role_specs import RoleSpec
from schemas.spec_part import Part, list_to_tuple
from schemas.spec_paths import at, differences, values_of

BUILT_IN_ALGORITHMS = tuple(BUILT_IN)


class NetworkSpec(Part):
    """One encoder for each observation field, joined; then a body of layers.

    Images go through ``image_encoder``, all else is flattened and multiplied by
    ``observation_scale``. Behind them come an MLP of ``hidden`` layers and, where
    ``lstm`` is above 0, a recurrent core.
    """

    image_encoder: Literal["auto", "nature", "impala", "flat"] = Field(
        "auto",
        description="For fields of uint8 [height, width, channels]: the CNN of DQN, "
        "the residual network of IMPALA, or flat: no convolution; auto: nature where "
        "they are large enough.",
    )
    lstm: int = Field(
        0, ge=0, le=65_536, description="Units of a recurrent core; 0: there is none."
    )
    separate_value: bool = Field(
        True,
        description="impala and ppo: whether policy and value have networks of their "
        "own, with an LSTM each where there is one.",
    )
    hidden: Annotated[
        tuple[Annotated[int, Field(ge=1, le=65_536)], ...],
        BeforeValidator(list_to_tuple),
    ] = Field((128, 128), max_length=64, description="Units of each layer.")
    activation: Literal["relu", "tanh"] = Field("relu", description="Between layers.")
    dueling: bool = Field(
        False,
        description="dqn and r2d2: whether value and advantages have heads of their "
        "own.",
    )
    observation_scale: Annotated[tuple[float, ...], BeforeValidator(list_to_tuple)] = (
        Field(
            (),
            description="What observations but images are multiplied by: one number, "
            "or one for each input; none: 1.",
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
        description=f"{', '.join(BUILT_IN_ALGORITHMS)}, or one that "
        "ROLLSTREAM_LEARNER_MODULES of the machine adds.",
        examples=["dqn"],
    )
    network: NetworkSpec = Field(NetworkSpec(), description="What is learnt.")
    replay: ReplaySpec = Field(
        ReplaySpec(), description="dqn, r2d2 and sac: what is learnt from."
    )
    distribution: DistributionSpec = Field(
        DistributionSpec(), description="dqn: of returns."
    )
    policy_gradient: PolicyGradientSpec = Field(
        PolicyGradientSpec(), description="impala and ppo: their loss."
    )
    impala: ImpalaSpec = Field(ImpalaSpec(), description="impala: V-trace.")
    ppo: PpoSpec = Field(PpoSpec(), description="ppo: an iteration.")
    r2d2: R2d2Spec = Field(R2d2Spec(), alias="r2d2", description="r2d2: its sequences.")
    sac: SacSpec = Field(SacSpec(), description="sac: targets and temperature.")
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
        128,
        ge=1,
        le=1_000_000,
        description="Transitions of an update; of r2d2 those of all its sequences, of "
        "impala and ppo so many at least: whole unrolls.",
    )
    max_policy_lag: int | None = Field(
        None,
        ge=0,
        description="Versions that the policy which acted may be behind; what is older "
        "is not learnt from. None: 1 for ppo, 20 for impala, any number for others.",
    )
    deterministic: bool = Field(
        False,
        description="Whether rows are taken in only when no update can be made, so "
        "that the same log gives the same parameters, bit for bit.",
    )
    learning_rate: float = Field(1e-3, gt=0, description="Adam's step size.")
    learning_rate_decay_updates: int | None = Field(
        None,
        ge=1,
        description="Updates over which the step size falls to 0, linearly; none: it "
        "stays.",
    )
    adam_epsilon: float = Field(1e-5, gt=0, description="Adam's epsilon.")
    max_grad_norm: float = Field(
        10.0, gt=0, description="Gradients of a larger norm are scaled down to it."
    )
    double: bool = Field(True, description="dqn and r2d2: double Q-learning.")
    target_update_period: int = Field(
        50,
        ge=1,
        description="dqn and r2d2: updates between copies to the target network.",
    )
    publish_every_updates: int | None = Field(
        None,
        ge=1,
        description="Updates between policies, at least; none: 1 for impala and ppo, "
        "16 for others.",
    )
    publish_interval_ms: int | None = Field(
        None,
        ge=0,
        description="Milliseconds between policies, at least; none: 0 for impala and "
        "ppo, 200 for others.",
    )
    policy_precision: Literal["full", "half"] = Field(
        "full",
        description="Of the numbers that workers act with; half: float32 is rounded to "
        "float16, half the bytes of a version.",
    )
    policy_encoding: Literal["full", "delta"] = Field(
        "full",
        description="Of versions above 256 kB; delta: most are sent as what differs "
        "from one a little older, exactly. Pays where many numbers stay the same.",
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

    @property
    def traits(self) -> Traits:
        """What kind of algorithm it is."""
        return traits_of(self.algorithm)

    @property
    def policy_lag_limit(self) -> int | None:
        """How many versions experience may be behind; None: any number."""
        given = self.max_policy_lag
        return self.traits.max_policy_lag if given is None else given

    @property
    def updates_per_policy(self) -> int:
        """How many updates there are between policies, at least."""
        usual = 1 if self.traits.is_on_policy else 16
        return self.publish_every_updates or usual

    @property
    def policy_interval_ms(self) -> int:
        """How many milliseconds there are between policies, at least."""
        given, usual = self.publish_interval_ms, 0 if self.traits.is_on_policy else 200
        return usual if given is None else given

    @property
    def least_rows(self) -> int:
        """How many rows there must be before anything is learnt from them."""
        return self.batch_size if self.traits.is_on_policy else self.replay.min_size

    @model_validator(mode="after")
    def _fits_the_algorithm(self) -> LearnerSpec:
        if problems := list(self._problems()):
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """Yield what does not fit the algorithm, a line each."""
        traits, name = self.traits, self.algorithm
        if traits.needs_lstm and not self.network.lstm:
            yield f"network.lstm: expected units for {name}, found 0"
        for path, usual, found in self._unread():
            yield (
                f"{path}: expected {json.dumps(usual)} for {name}, which does not read "
                f"it, found {json.dumps(found)}: leave it out"
            )
        if traits.is_on_policy and self.samples_per_insert != 1:
            yield (
                f"samplesPerInsert: expected 1 for {name}, which learns from each row "
                f"once, found {self.samples_per_insert:g}"
            )
        if traits.learns_from != "transitions" and len(self.sources) > 1:
            yield (
                f"sources: expected at most one for {name}, found {len(self.sources)}"
            )

    def _unread(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield path, default and value of what was set for another algorithm.

        A stored spec spells out every default, so that only what differs was set.
        """
        usual, own = values_of(LearnerSpec.model_construct()), values_of(self)
        for path in unread_keys(self.algorithm):
            yield from differences(path, at(usual, path), at(own, path))

    @model_validator(mode="after")
    def _sources_differ(self) -> LearnerSpec:
        names = [source.experiment for source in self.sources]
        twice = {str(name or "this one") for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(
                f"sources: expected each experiment once, found {min(twice)} twice"
            )
        return self
