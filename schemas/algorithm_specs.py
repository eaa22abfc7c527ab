"""The parts of a spec that only some algorithms read."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from schemas.spec_part import Part


class DistributionSpec(Part):
    """DQN: the distribution of returns instead of their mean.

    ``categorical``: C51, arXiv:1707.06887; ``quantile``: QR-DQN, arXiv:1710.10044.
    """

    kind: Literal["none", "categorical", "quantile"] = Field(
        "none", description="none: the mean alone."
    )
    atoms: int = Field(51, ge=2, le=1_024, description="Values or quantiles of it.")
    v_min: float = Field(-10.0, description="The least value, of a categorical one.")
    v_max: float = Field(10.0, description="The greatest value, likewise.")

    @model_validator(mode="after")
    def _is_an_interval(self) -> DistributionSpec:
        if self.v_min >= self.v_max:
            raise ValueError(
                f"vMax: expected more than vMin, {self.v_min:g}, found {self.v_max:g}"
            )
        return self


class PolicyGradientSpec(Part):
    """PPO and IMPALA: what is added up in the loss, and how advantages are made."""

    entropy_cost: float = Field(
        0.01, ge=0, description="Weight of the entropy, which is to be high."
    )
    value_cost: float = Field(0.5, ge=0, description="Weight of the value's error.")
    trace_lambda: float = Field(
        0.95, ge=0, le=1, description="GAE's lambda, and V-trace's."
    )
    normalise_advantages: bool = Field(
        True, description="PPO: to mean 0 and deviation 1, in each minibatch."
    )


class PpoSpec(Part):
    """PPO, arXiv:1707.06347: how one iteration's rows are gone over."""

    epochs: int = Field(4, ge=1, le=1_000, description="Times each row is gone over.")
    minibatch_size: int = Field(
        512, ge=1, le=1_000_000, description="Rows of each step of descent."
    )
    clip: float = Field(
        0.2, gt=0, description="How far from 1 the ratio of probabilities counts."
    )
    value_clip: float = Field(
        0.0, ge=0, description="How far a value may move in an iteration; 0: any way."
    )
    target_kl: float = Field(
        0.0,
        ge=0,
        description="The iteration ends once policies are this far apart; 0: never.",
    )


class ImpalaSpec(Part):
    """IMPALA's V-trace, arXiv:1802.01561: where importance weights are cut."""

    rho_clip: float = Field(1.0, gt=0, description="Of the temporal differences.")
    c_clip: float = Field(1.0, gt=0, description="Of the traces.")


class SacSpec(Part):
    """SAC, arXiv:1812.05905."""

    tau: float = Field(
        0.005, gt=0, le=1, description="How far targets move at each update."
    )
    actor_learning_rate: float = Field(
        3e-4, gt=0, description="Adam's step size for the policy and the temperature."
    )
    initial_temperature: float = Field(
        1.0, gt=0, description="Weight of the entropy at first."
    )
    target_entropy: float | None = Field(
        None, description="None: minus the number of action's coordinates."
    )
    fixed_temperature: bool = Field(
        False, description="Whether the temperature stays as it is at first."
    )


class R2d2Spec(Part):
    """R2D2, Kapturowski et al. 2019: stretches of recurrent experience."""

    burn_in: int = Field(
        0, ge=0, le=10_000, description="Steps that only warm the state up."
    )
    sequence_length: int = Field(
        80, ge=1, le=10_000, description="Steps that are learnt from, after those."
    )
    eta: float = Field(
        0.9,
        ge=0,
        le=1,
        description="Share of the largest error in a priority; the rest is the mean's.",
    )
    rescale_values: bool = Field(
        True, description="Whether values are learnt as h(x), which is about sqrt(x)."
    )
