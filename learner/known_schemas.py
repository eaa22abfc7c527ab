"""The topic of schemas -> what this process can decode."""

from __future__ import annotations

import json

from infra.kafka.reading import read_to_end
from infra.settings import Settings
from schemas.errors import SchemaError
from schemas.registry import Registry
from schemas.topics import SCHEMAS, topic_name


def learn_schemas(settings: Settings, registry: Registry) -> None:
    """Add what the topic of schemas holds by now; what is no schema is passed over.

    Raises:
        RollstreamError: the topic cannot be read.
    """
    for message in read_to_end(settings, topic_name(SCHEMAS)):
        try:
            entry = json.loads(message.value)
            # The entry carries the text under `schema`, beside its subject.
            text = entry["schema"] if "schema" in entry else entry
            registry.add(text if isinstance(text, str) else json.dumps(text))
        except (ValueError, TypeError, SchemaError):
            continue
