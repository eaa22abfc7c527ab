"""Records of the topic of schemas -> subjects and their versions.

Who reads the topic from its start comes to the same versions as everybody else: the
order of the log decides, and nothing but the log.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import fastavro

from schemas.compatibility import IncompatibleSchema, check_upgrade
from schemas.errors import SchemaError
from schemas.registry import KnownSchema, canonical_form, know, load_json
from schemas.topics import EXPERIMENT_NAME, PREFIX, TOPICS

MAX_SUBJECT = 249
MAX_VALUE_BYTES = 1_000_000
"""Brokers allow 1 MiB for a batch, unless told otherwise."""

_HAVE_RECORDS = [topic for topic in TOPICS if topic.suffix != "schemas"]
_ALIAS = re.compile(
    rf"{re.escape(PREFIX)}(?:(?P<experiment>{EXPERIMENT_NAME.pattern})\.)?"
    rf"(?P<suffix>{'|'.join(topic.suffix for topic in _HAVE_RECORDS)})-value"
)
_known = lru_cache(maxsize=128)(know)


@dataclass(frozen=True, slots=True)
class Registration:
    """A version of a subject.

    Attributes:
        subject: the full name of a record of ours, or what others chose; empty for a
            bare schema, which can be read with and has no versions.
        version: 1, 2, ... in the order of the log.
        id: of the schema.
        text: the schema.
    """

    subject: str
    version: int
    id: int
    text: str

    @property
    def key(self) -> str:
        """The key of its record."""
        return str(self.id)

    def to_value(self) -> bytes:
        """Return the value of its record."""
        return json.dumps(
            {
                "subject": self.subject,
                "version": self.version,
                "id": self.id,
                "schema": self.text,
            }
        ).encode()


def parse_registration(value: bytes) -> Registration:
    """Return what a record of the topic of schemas says: JSON, or a bare schema.

    Raises:
        SchemaError: nothing that could be read with; says what is wrong.
    """
    try:
        text = value.decode("utf-8")
        found = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise SchemaError(f"expected JSON, found {exc!r}") from exc
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        return Registration("", 0, _known(text, 0).id, text)
    number = _known(found["schema"], 0).id
    if found.get("id", number) != number:
        raise SchemaError(f"expected the id {number}, found {found['id']!r}")
    subject, version = found.get("subject", ""), found.get("version", 0)
    if not isinstance(subject, str) or not isinstance(version, int):
        raise SchemaError(
            f"expected a subject and a version, found {subject!r} and {version!r}"
        )
    return Registration(subject, version, number, found["schema"])


class SubjectLog:
    """What the topic of schemas says, record after record.

    1. The first text of an id wins; a later one is passed over.
    2. A record is the next version of its subject when it says so: it names the version
       that follows the last one, and its schema is new to the subject. Of two processes
       that register at once, both name the same version, and the log has one first; the
       other sees that it was not taken, and checks again.
    """

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._subjects: dict[str, list[Registration]] = {}

    def take(self, record: Registration) -> None:
        """Enter the next record of the log."""
        first = self._texts.setdefault(record.id, record.text)
        if not record.subject or not same_meaning(first, record.text):
            return
        versions = self.versions(record.subject)
        is_next = record.version == len(versions) + 1
        if is_next and all(known.id != record.id for known in versions):
            kept = Registration(record.subject, record.version, record.id, first)
            self._subjects.setdefault(record.subject, []).append(kept)

    def text(self, number: int) -> str | None:
        """Return the text of an id; None where there is none."""
        return self._texts.get(number)

    def subjects(self) -> list[str]:
        """Return all subjects, sorted."""
        return sorted(self._subjects)

    def versions(self, subject: str) -> list[Registration]:
        """Return the versions of a subject, the first one first."""
        return list(self._subjects.get(subject, ()))

    def uses(self, number: int) -> list[Registration]:
        """Return the subjects that have a schema, and as which version."""
        return [
            version
            for subject in self.subjects()
            for version in self._subjects[subject]
            if version.id == number
        ]

    def find(self, subject: str, text: str) -> Registration | None:
        """Return the version that a schema is, or None.

        Raises:
            SchemaError: the text is no schema.
        """
        number = _known(text, 0).id
        for version in self.versions(subject):
            if version.id == number and same_meaning(version.text, text):
                return version
        return None

    def plan(self, subject: str, text: str) -> Registration:
        """Return the version that a schema is, or could be next.

        Raises:
            SchemaError: the text, or the subject's name, is not one.
            IncompatibleSchema: the subject refuses it; names the field.
        """
        check_subject(subject)
        if (there := self.find(subject, text)) is not None:
            return there
        self.check(text, self.versions(subject))
        number, next_version = _known(text, 0).id, len(self.versions(subject)) + 1
        planned = Registration(subject, next_version, number, text)
        if (size := len(planned.to_value())) > MAX_VALUE_BYTES:
            raise SchemaError(
                f"expected a record of at most {MAX_VALUE_BYTES} bytes, found {size}"
            )
        return planned

    def check(self, text: str, versions: list[Registration]) -> None:
        """Check that a schema may follow every one of ``versions``.

        Raises:
            SchemaError: the text is no schema.
            IncompatibleSchema: it may not; names the field.
        """
        new = _known(text, 0)
        first = self._texts.get(new.id)
        if first is not None and not same_meaning(first, text):
            raise _same_form(new, first)
        for version in versions:
            problems = check_upgrade(new.parsed, _known(version.text, 0).parsed)
            if problems:
                raise IncompatibleSchema(
                    f"{version.subject} version {version.version}: "
                    + "; ".join(map(str, problems))
                )


def same_meaning(one: str, other: str) -> bool:
    """Say whether two texts differ in their spelling only.

    Names in full or in a namespace, the order of keys and white space are spelling;
    defaults, aliases, docs and logical types are not.
    """
    return one == other or _expanded(one) == _expanded(other)


def _expanded(text: str) -> Any:
    return _without_marks(fastavro.parse_schema(load_json(text)))


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"type"}:  # {"type": "string"} is "string"
            return _without_marks(value["type"])
        return {k: _without_marks(v) for k, v in value.items() if k[:2] != "__"}
    return [_without_marks(v) for v in value] if isinstance(value, list) else value


def _same_form(new: KnownSchema, first: str) -> IncompatibleSchema:
    if canonical_form(load_json(first)) != canonical_form(load_json(new.text)):
        return IncompatibleSchema(
            f"{new.name}: expected an id that no schema has, found {new.id}, by chance "
            f"that of {_known(first, 0).name}; rename a field"
        )
    return IncompatibleSchema(
        f"{new.name}: expected a change that shows in the canonical form, found one of "
        f"defaults, aliases, docs or logical types only: the id stays {new.id}, and "
        "with it the text that is there; change a field as well"
    )


def check_subject(subject: str) -> str:
    """Return the name of a subject, or raise SchemaError with the rule."""
    if not subject or len(subject) > MAX_SUBJECT or not subject.isprintable():
        raise SchemaError(
            f"subject: expected 1 to {MAX_SUBJECT} printable characters, found "
            f"{subject[:80]!r}"
        )
    return subject


def resolve_subject(subject: str, text: str | None = None) -> str:
    """Return the subject that ``<topic>-value`` stands for, for topics of the map.

    A topic has records of several types, and clients know one subject for it: with a
    schema at hand it is that of its record, else that of the topic's first type.

    Raises:
        SchemaError: the text is no schema.
        IncompatibleSchema: it is no record of that topic.
    """
    match = _ALIAS.fullmatch(subject)
    if match is None:
        return subject
    per_experiment = match["experiment"] is not None
    for topic in _HAVE_RECORDS:
        if topic.suffix == match["suffix"] and topic.per_experiment == per_experiment:
            name = topic.records[0] if text is None else _known(text, 0).name
            if name in topic.records:
                return record_subject(name)
            raise IncompatibleSchema(
                f"{subject}: expected a record {' or '.join(topic.records)}, found "
                f"{name}"
            )
    return subject


def record_subject(name: str) -> str:
    """Return the subject of a record of ours: its full name."""
    return PREFIX + name
