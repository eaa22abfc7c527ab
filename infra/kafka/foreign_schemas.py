"""Schemas of newer writers <- the topic of schemas."""

from __future__ import annotations

import logging
from typing import Any

from infra.errors import RollstreamError
from infra.kafka.reading import read_to_end
from infra.settings import Settings
from schemas.codec import decode, decode_any
from schemas.errors import SchemaError, UnknownSchemaId
from schemas.registry import Registry
from schemas.subjects import parse_registration
from schemas.topics import SCHEMAS, topic_name

_log = logging.getLogger("rollstream.schemas")


def learn_schema(settings: Settings, registry: Registry, wanted: int) -> bool:
    """Read the topic of schemas into ``registry``; blocks.

    All that can be read with is learnt, also what no subject accepted: a record that
    was written with it all the same is then refused as such, and nobody waits for it.

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


def decode_foreign(
    settings: Settings, registry: Registry, value: bytes, *kinds: type
) -> Any:
    """Return the record in ``value``, also with a schema that did not ship; may block.

    Args:
        settings: where the topic of schemas is.
        registry: learns what it lacks.
        value: the record's value.
        kinds: what it may be; without any, every record of ours.

    Raises:
        SchemaError: as ``codec.decode``.
    """
    try:
        return _decode(value, kinds, registry)
    except UnknownSchemaId as exc:
        if not learn_schema(settings, registry, exc.schema_id):
            raise
    return _decode(value, kinds, registry)


def _decode(value: bytes, kinds: tuple[type, ...], registry: Registry) -> Any:
    if kinds:
        return decode(value, *kinds, registry=registry)
    return decode_any(value, registry)


def _add(registry: Registry, value: bytes) -> None:
    try:
        registry.add(parse_registration(value).text)
    except SchemaError as exc:
        _log.warning("a record of the topic of schemas is passed over: %s", exc)
