"""The topic of experiments -> what is in force, and what was refused and why.

Everybody folds the same records by the same rules: agents, commands, roles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from infra.kafka.reading import Message
from infra.kafka.whole_topic import WholeTopic
from infra.printable import printable
from infra.settings import Settings
from schemas.codec import decode
from schemas.experiment import Experiment, SpecError, parse_json
from schemas.records import ExperimentSpec
from schemas.resume import check_resumable
from schemas.topics import EXPERIMENTS, topic_name

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
MANAGERS = ("run", "agents")
MAX_RECORD_BYTES = 256 * 1024
MAX_REASON = 500


@dataclass(frozen=True)
class PublishedExperiment:
    """A spec in the topic.

    Attributes:
        experiment: what it says.
        run_id: the run it belongs to.
        offset: of its record.
        managed_by: ``run``, a foreground command; or ``agents``.
    """

    experiment: Experiment
    run_id: str
    offset: int
    managed_by: str = "run"

    def says_as(self, other: PublishedExperiment) -> bool:
        """Whether another record says the same of the same run."""
        return replace(self, offset=other.offset) == other


@dataclass(frozen=True)
class Refusal:
    """A record that changes nothing; its reason is one printable line."""

    offset: int
    reason: str


@dataclass(frozen=True)
class Entry:
    """What is known of one key.

    Attributes:
        accepted: the spec in force; None: there is none.
        newest_offset: of the newest record, also a refused one; what the next spec
            has to name as replaced. -1: there is none.
        refused: the newest record, when it was refused.
        deleted: nothing was accepted since a tombstone.
        tombstone_offset: of that tombstone.
        last_refused: the newest that was refused since what is in force first was,
            also when that was put behind it again.
    """

    accepted: PublishedExperiment | None = None
    newest_offset: int = -1
    refused: Refusal | None = None
    deleted: bool = False
    tombstone_offset: int = -1
    last_refused: Refusal | None = None


class Desired:
    """A fold over the topic of experiments, from any record of a key on.

    A spec is refused, and what was in force before stays, when it

    1. cannot be read, is too large, or is not what its key says;
    2. is stale: it does not name the spec in force, nor the newest record, as the
       one that it replaces. The first readable record of a key is never stale: what
       it replaces may be compacted away. After a tombstone only a spec that names
       that, or nothing, is accepted: a late change does not resurrect.
    3. would mix the data of the run in force with other data.
    """

    def __init__(self, entries: dict[str, Entry] | None = None) -> None:
        self.entries: dict[str, Entry] = dict(entries or {})

    def apply(self, message: Message) -> str | None:
        """Take in the topic's next record; return the name that it is about.

        Never raises on account of what the record holds; None: it has no key.
        """
        name = message.key
        if not name:
            return None
        before = self.entries.get(name, Entry())
        self.entries[name] = _after(before, message)
        return name

    def of(self, name: str) -> Entry:
        """Return what is known of a name; an empty entry when nothing is."""
        return self.entries.get(name, Entry())

    def in_force(self) -> dict[str, PublishedExperiment]:
        """Return the spec in force of each name that has one."""
        return {
            name: entry.accepted
            for name, entry in sorted(self.entries.items())
            if entry.accepted is not None
        }


def _after(entry: Entry, message: Message) -> Entry:
    offset = message.offset
    if message.tombstone:
        return Entry(None, offset, None, True, offset)
    try:
        published, replaces = _read(message)
        _check_replaces(entry, replaces)
        _check_mixes(entry, published)
    except Exception as exc:
        # Whatever a parser runs into: who died of a record would die of it for ever.
        refusal = Refusal(offset, one_line(str(exc) or repr(exc)))
        return replace(
            entry, newest_offset=offset, refused=refusal, last_refused=refusal
        )
    is_restored = entry.accepted is not None and entry.accepted.says_as(published)
    return Entry(
        published, offset, last_refused=entry.last_refused if is_restored else None
    )


def _read(message: Message) -> tuple[PublishedExperiment, int]:
    size = len(message.value)
    if size > MAX_RECORD_BYTES:
        raise ValueError(f"expected at most {MAX_RECORD_BYTES} bytes, found {size}")
    record = decode(message.value, ExperimentSpec)
    experiment = parse_json(record.spec)
    for name in (record.experiment, experiment.name):
        if name != message.key:
            raise ValueError(f"expected the name {message.key[:80]!r}, found {name!r}")
    # It becomes part of a path.
    if not RUN_ID.fullmatch(record.run_id):
        raise ValueError(f"expected a run id, found {record.run_id[:80]!r}")
    if record.managed_by not in MANAGERS:
        raise ValueError(
            f"managed_by: expected {' or '.join(MANAGERS)}, found "
            f"{record.managed_by[:80]!r}"
        )
    published = PublishedExperiment(
        experiment, record.run_id, message.offset, record.managed_by
    )
    return published, record.replaces


def _check_replaces(entry: Entry, replaces: int) -> None:
    if entry.accepted is not None:
        expected = {entry.accepted.offset, entry.newest_offset}
    elif entry.deleted:
        expected = {-1, entry.tombstone_offset, entry.newest_offset}
    else:
        return  # the first that can be read
    if replaces not in expected:
        raise ValueError(
            "stale: expected it to replace offset "
            f"{' or '.join(map(str, sorted(expected)))}, found {replaces}"
        )


def _check_mixes(entry: Entry, published: PublishedExperiment) -> None:
    past = entry.accepted
    if past is None or past.run_id != published.run_id:
        return
    try:
        check_resumable(past.experiment, published.experiment)
    except SpecError as exc:
        raise ValueError(f"it would mix the run's data: {exc}") from exc


def one_line(text: str) -> str:
    """Return text of any origin as one printable line of at most MAX_REASON."""
    return printable(" ".join(text[: 4 * MAX_REASON].split())[:MAX_REASON])


class SpecFollower:
    """Follows the topic of experiments from its beginning.

    Attributes:
        desired: the fold of all that was read; another object after the topic was
            made anew.
    """

    def __init__(self, settings: Settings, only: str | None = None) -> None:
        """Open it; with ``only`` the records of other names are passed over unread."""
        self.desired = Desired()
        self._only = only
        self._topic = WholeTopic(
            settings, topic_name(EXPERIMENTS), "specs", self._forget
        )

    def poll(self, timeout_s: float) -> set[str]:
        """Take in what has come, wait at most ``timeout_s`` for the first.

        Returns:
            the names whose entries changed.
        """
        return {message.key for message in self._applied(self._topic.poll(timeout_s))}

    def read_to_end(self) -> set[str]:
        """Take in all that the topic holds now; return the names that changed.

        Raises:
            KafkaUnavailable: the brokers do not answer.
            TopicError: there is no such topic.
        """
        return {message.key for message in self.to_end()}

    def to_end(self) -> Iterator[Message]:
        """Yield each record up to the topic's present end, after it was applied.

        To be exhausted: what is not taken is not applied. Raises as ``read_to_end``.
        """
        return self._applied(self._topic.to_end())

    def close(self) -> None:
        """Leave the topic."""
        self._topic.close()

    def _forget(self) -> None:
        self.desired = Desired()

    def _applied(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            if self._only in (None, message.key) and self.desired.apply(message):
                yield message
