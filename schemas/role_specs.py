"""What every role says of itself: where it may run, and how many of it there are."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from schemas.spec_part import Part

# As Kubernetes has them, so that a label can be copied from there.
Label = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$"),
]


class Resources(Part):
    """What one process reserves of its host: where it is placed, never a limit."""

    cpu: float = Field(
        0.25, ge=0, le=4096, description="CPU cores, fractions too.", examples=[0.5]
    )
    gpu: float = Field(
        0.0, ge=0, le=4096, description="GPUs, fractions too.", examples=[1]
    )


class RoleSpec(Part):
    """Where the processes of a role may run."""

    resources: Resources = Field(
        Resources(), description="What one process reserves of its host."
    )
    node_selector: dict[Label, Label] = Field(
        {},
        max_length=32,
        description="Labels that the agent of a host must have, all of them.",
        examples=[{"zone": "a"}],
    )


class ElasticSpec(RoleSpec):
    """A role of which there may be more or fewer; ``replicas``: at the start."""

    replicas: int
    min: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="Fewest processes when their number follows the load; with max.",
        examples=[1],
    )
    max: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="Most processes when their number follows the load; with min.",
        examples=[8],
    )

    @model_validator(mode="before")
    @classmethod
    def _start_with_the_fewest(cls, values: Any) -> Any:
        if isinstance(values, dict) and "replicas" not in values:
            fewest = values.get("min")
            return values if fewest is None else values | {"replicas": fewest}
        return values

    @model_validator(mode="after")
    def _replicas_are_within(self) -> Self:
        if (self.min is None) != (self.max is None):
            missing = "min" if self.min is None else "max"
            raise ValueError(f"{missing}: expected min and max or neither, found none")
        if self.min is None or self.max is None:
            return self
        if self.min > self.max:
            raise ValueError(f"min: expected at most max {self.max}, found {self.min}")
        if not self.min <= self.replicas <= self.max:
            raise ValueError(
                f"replicas: expected min {self.min} to max {self.max}, found "
                f"{self.replicas}"
            )
        return self

    @property
    def is_elastic(self) -> bool:
        """Whether the number of processes follows the load."""
        return self.max is not None

    @property
    def most_replicas(self) -> int:
        """How many processes there may be: ``max``, or else ``replicas``."""
        return self.replicas if self.max is None else self.max


class ScalingSpec(Part):
    """How calmly the number of processes follows the load."""

    cool_down_s: float = Field(
        30.0, ge=0, le=86_400, description="Seconds from one change to the next."
    )
    window_s: float = Field(
        15.0,
        gt=0,
        le=3_600,
        description="Seconds for which the load has to ask for a change.",
    )
