"""Schemas of newer writers <- the topic of schemas."""

from __future__ import annotations

import json
import logging

from infra.errors import RollstreamError
from infra.kafka.reading import read_to_end
from infra.settings import Settings
from schemas.errors import SchemaError, UnknownSchemaId
from schemas.registry import Registry
from schemas.topics import SCHEMAS, topic_name

_log = logging.getLogger("rollstream.schemas")


def learn_schema(settings: Settings, registry: Registry, wanted: int) -> bool:
    """Read the topic of schemas into ``registry``; blocks.

    Returns:
        Whether the wanted id is known now.
    """
    try:
        for message in read_to_end(settings, topic_name(SCHEMAS)):
            _add(registry, message.value)
    except RollstreamError as exc:
        _log.warning("schemas cannot be read: %s", exc)
    try:
        registry.by_id(wanted)
    except UnknownSchemaId:
        return False
    return True


def _add(registry: Registry, value: bytes) -> None:
    try:
        registry.add(schema_text(value))
    except (SchemaError, ValueError) as exc:
        _log.warning("a record of the topic of schemas is passed over: %s", exc)


def schema_text(value: bytes) -> str:
    """Return the schema in a record: its text, or JSON that has it as ``schema``."""
    text = value.decode("utf-8")
    found = json.loads(text)
    if isinstance(found, dict) and isinstance(found.get("schema"), str):
        return str(found["schema"])
    return text
