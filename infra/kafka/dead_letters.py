"""Records that cannot be read -> the topic of dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.clock import now_ms
from infra.kafka.delivery import Sender
from schemas.codec import encode
from schemas.records import DeadLetter, SourceRef
from schemas.topics import DEAD_LETTERS

if TYPE_CHECKING:
    from infra.control.role import RoleContext

KEPT_BYTES = 64_000


def dead_letter(
    sender: Sender,
    context: RoleContext,
    source: SourceRef,
    key: bytes | None,
    value: bytes | None,
    error: Exception | str,
) -> None:
    """Publish where the record is, what is wrong with it, and its first 64 kB.

    The caller acknowledges the record only after ``sender`` has delivered.
    """
    value = value or b""
    record = DeadLetter(
        experiment=context.experiment.name,
        source=source,
        reader=context.member_key,
        error=str(error)[:4096],
        key=(key or b"")[:KEPT_BYTES],
        value=value[:KEPT_BYTES],
        value_bytes=len(value),
        produced_at_ms=now_ms(),
    )
    sender.send(context.topic(DEAD_LETTERS), encode(record), source.topic)
