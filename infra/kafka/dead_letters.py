"""Records that could not be used -> the topic of dead letters, and back from there.

A letter's number is its offset in that topic. A DeadLetter whose own source is the
topic of dead letters is a mark: the letter it names was put back (``reinjection``).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from infra.clock import now_ms
from infra.errors import OffsetError, RollstreamError, TopicError
from infra.kafka.delivery import Sender
from infra.kafka.reading import Message, read_to_end
from infra.settings import Settings
from schemas.codec import decode, encode
from schemas.errors import SchemaError
from schemas.records import DeadLetter, SourceRef
from schemas.topics import DEAD_LETTERS, topic_name

if TYPE_CHECKING:
    from infra.control.role import RoleContext

KEPT_BYTES = 64_000
REINJECTED = "rollstream-reinjected"
"""The header of a record that was put back; its value is the letter's number."""

NEVER_IN_THE_LOG = -1
"""The offset in a source that was refused before it got one."""

_log = logging.getLogger("rollstream")


class NoOriginal(RollstreamError):
    """A record is larger than what its letter holds, and cannot be had elsewhere."""


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


@dataclass(frozen=True)
class Letter:
    """A dead letter in its topic.

    Attributes:
        number: its offset there.
        appended_at_ms: when it was written, by the broker's clock.
        record: as it was written; ``read_letters`` leaves its value out.
        digest: of the kept value; with the source, it tells repetitions.
        reinjected: where the record was put back to; "" when it was not.
    """

    number: int
    appended_at_ms: int
    record: DeadLetter
    digest: str
    reinjected: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        """What it has in common with other letters of the same record.

        A reader that was killed before it acknowledged has buried a record twice.
        """
        record = self.record
        if record.source.offset == NEVER_IN_THE_LOG:
            return (self.number,)
        return (record.source, record.value_bytes, self.digest)


def letter_of(message: Message) -> Letter | None:
    """Return the letter that a message of the topic is; None: it cannot be read."""
    try:
        record = decode(message.value, DeadLetter)
    except SchemaError as exc:
        _log.warning("dead letter %d is passed over: %s", message.offset, exc)
        return None
    digest = hashlib.sha256(record.value).hexdigest()
    return Letter(message.offset, message.timestamp_ms, record, digest)


def iterate_letters(settings: Settings, experiment: str) -> Iterator[Letter]:
    """Yield the letters, oldest first, with their values; and the marks among them."""
    for message in read_to_end(settings, topic_name(DEAD_LETTERS, experiment)):
        if (letter := letter_of(message)) is not None:
            yield letter


def read_letters(settings: Settings, experiment: str) -> list[Letter]:
    """Return the letters, oldest first, without their values: there may be many."""
    return marked(iterate_letters(settings, experiment), experiment)


def marked(found: Iterable[Letter], experiment: str) -> list[Letter]:
    """Return the letters without their values, and with what the marks say of them."""
    letters: list[Letter] = []
    marks: dict[int, str] = {}
    for letter in found:
        if is_mark(letter.record, experiment):
            marks[letter.record.source.offset] = letter.record.error
        else:
            record = replace(letter.record, value=b"")
            letters.append(replace(letter, record=record))
    done = {
        each.identity: marks[each.number] for each in letters if each.number in marks
    }
    return [replace(each, reinjected=done.get(each.identity, "")) for each in letters]


def is_mark(record: DeadLetter, experiment: str) -> bool:
    """Whether a record says that a letter was put back."""
    return record.source.topic == topic_name(DEAD_LETTERS, experiment)


def whole_value(settings: Settings, record: DeadLetter) -> bytes:
    """Return all of a record that became a dead letter.

    What its letter does not hold is read from the log again, and compared with what the
    letter does hold: length, key and first 64 kB.

    Raises:
        NoOriginal: it is not there any more; says what is.
    """
    if len(record.value) == record.value_bytes:
        return record.value
    source = record.source
    kept = f"its letter holds {len(record.value)} of {record.value_bytes} bytes"
    if source.offset == NEVER_IN_THE_LOG:
        raise NoOriginal(f"{kept}, and it was refused before it was in any log")
    found = _at(settings, source)
    if found is None:
        raise NoOriginal(f"{kept}, and {source} is no longer in the log")
    is_same = (
        len(found.value) == record.value_bytes
        and found.value.startswith(record.value)
        and found.key == record.key.decode(errors="replace")
    )
    if not is_same:
        raise NoOriginal(f"{kept}, and {source} is another record now")
    return found.value


def _at(settings: Settings, source: SourceRef) -> Message | None:
    try:
        messages = read_to_end(settings, source.topic, source.partition, source.offset)
        found = next(messages, None)
    except (OffsetError, TopicError):
        return None
    return found if found is not None and found.offset == source.offset else None
