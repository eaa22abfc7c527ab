"""What all parts of a spec have in common, and the kinds of values they are made of."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic.alias_generators import to_camel

MIN_DISK_BUDGET_BYTES = 10**8
MAX_DISK_BUDGET_BYTES = 10**18

_SIZE = re.compile(r"^([0-9]{1,18}(?:\.[0-9]{1,18})?) ?(B|kB|MB|GB|TB)$")
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class SpecError(ValueError):
    """A spec that is refused; one line a problem: path, expected, found."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Part(BaseModel):
    """A mapping in a spec: camelCase keys, none but the known ones, no conversions."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
    )


JsonValue = None | bool | int | float | str | list[Any] | dict[str, Any]


def _size(value: Any) -> Any:
    """``20GB`` to bytes."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    if match is None:
        raise ValueError(f"expected a size such as 20GB, found {value[:80]!r}")
    return round(float(match[1]) * _UNITS[match[2]])


Size = Annotated[
    int,
    BeforeValidator(_size),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "integer",
                    "minimum": MIN_DISK_BUDGET_BYTES,
                    "maximum": MAX_DISK_BUDGET_BYTES,
                },
                {"type": "string", "pattern": _SIZE.pattern},
            ]
        }
    ),
]
"""Bytes, as a number or as text with a unit."""


def list_to_tuple(value: Any) -> Any:
    """Let a list of YAML or JSON stand where a tuple is kept."""
    return tuple(value) if isinstance(value, list) else value
