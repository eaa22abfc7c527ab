"""The spec as a JSON Schema: what editors complete, explain and underline."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema

from schemas.experiment import Experiment

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def experiment_schema() -> dict[str, Any]:
    """Return the schema of what ``rollstream run`` and ``launch`` take.

    Whatever the parser accepts is valid. What it refuses is not, where a schema can
    say so: not that two numbers have to fit each other, or that 2.0 is no count.
    """
    schema = Experiment.model_json_schema(by_alias=True, schema_generator=_Generator)
    for part in schema["$defs"].values():
        for field in part["properties"].values():
            if "patternProperties" in field:
                field["additionalProperties"] = False
    return {"$schema": DIALECT, **schema, "title": "rollstream experiment"}


class _Generator(GenerateJsonSchema):
    """Without a title for each field: it would only say its name again."""

    def field_title_should_be_set(self, schema: CoreSchema | FieldInfo | Any) -> bool:
        """Return False."""
        return False
