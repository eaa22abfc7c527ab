"""The part of a spec that says what of the past is learnt from."""

from __future__ import annotations

import re

from pydantic import Field, field_validator, model_validator
from pydantic.config import JsonDict

from schemas.role_specs import RoleSpec
from schemas.spec_part import Part
from schemas.topics import EXPERIMENT_NAME, check_name

ARCHIVE_NAME = (
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}(/[A-Za-z0-9][A-Za-z0-9_.-]{0,127}){0,3}"
)
"""A folder below the machine's directory of archives; never out of it."""

_NAME: JsonDict = {"pattern": f"^{EXPERIMENT_NAME.pattern}$"}

RATE = r"max|[0-9]{1,9}(\.[0-9]{1,6})?x|[0-9]{1,12}"


class PastSpec(RoleSpec):
    """Recorded experience that is replayed into the experiment, by a role of its own.

    Of an experiment's topics or of an archive; neither: there is none. Steps keep their
    worker, incarnation, sequence and time. See `archive.selection` for what the texts
    may say.
    """

    experiment: str | None = Field(
        None,
        description="Whose topics are replayed.",
        examples=["cartpole-dqn"],
        json_schema_extra=_NAME,
    )
    archive: str | None = Field(
        None,
        max_length=512,
        description="Which folder of the machine's archives is replayed.",
        examples=["cartpole-dqn/r1"],
        json_schema_extra={"pattern": f"^{ARCHIVE_NAME}$"},
    )
    since: str | None = Field(
        None,
        max_length=64,
        description="Only from there: a time with its zone, offset:N or step:N.",
        examples=["2026-11-30T10:00:00Z"],
    )
    until: str | None = Field(
        None,
        max_length=64,
        description="Only before that; as since.",
        examples=["step:20000"],
    )
    policy_versions: str | None = Field(
        None,
        max_length=64,
        description="Only what these policies did: A..B, A.. or ..B; -1: at random.",
        examples=["3..9"],
    )
    workers: str | None = Field(
        None,
        max_length=512,
        description="Only of these workers: indices and ranges.",
        examples=["0,2-5"],
    )
    episodes: str | None = Field(
        None,
        max_length=64,
        description="Only steps of episodes with such a return or length.",
        examples=["return>=200"],
    )
    rate: str = Field(
        "max",
        pattern=f"^({RATE})$",
        description="max, steps per second, or 2x: twice as fast as it was.",
        examples=["2x"],
    )

    @field_validator("experiment")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        return None if value is None else check_name(value)

    @field_validator("archive")
    @classmethod
    def _is_a_folder(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(ARCHIVE_NAME, value):
            raise ValueError(
                "expected the name of a folder in the directory of archives, such as "
                f"cartpole-dqn/r1, found {value[:80]!r}"
            )
        return value

    @model_validator(mode="after")
    def _is_one_source(self) -> PastSpec:
        if self.experiment is not None and self.archive is not None:
            raise ValueError("archive: expected none beside experiment, found one")
        return self

    @property
    def is_set(self) -> bool:
        """Whether there is anything to replay."""
        return self.experiment is not None or self.archive is not None


class SourceSpec(Part):
    """Transitions of one experiment that the learner learns from."""

    experiment: str | None = Field(
        None,
        description="Whose processors make them; none: this one's.",
        examples=["cartpole-past"],
        json_schema_extra=_NAME,
    )
    weight: float = Field(
        1.0, gt=0, le=1e6, description="How much of each batch, beside the others'."
    )

    @field_validator("experiment")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        return None if value is None else check_name(value)
