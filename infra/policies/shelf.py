"""Records of the topics of policies -> which versions can be had, and where; pure.

The newest and the best are kept in the topic of policies, under keys of their own; some
others in the history. Of tensors nothing is kept here but their size and address.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from infra.kafka.reading import Message
from infra.policies.keys import BEST_KEY, CURRENT_KEY
from infra.policies.tensor_header import count_numbers
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.records import (
    PolicyChunk,
    PolicyGraph,
    PolicyRef,
    PolicyVersion,
    SourceRef,
)
from schemas.topics import POLICY_CHUNKS, topic_name


@dataclass(frozen=True)
class Kept:
    """A version whose graph and tensors can be had.

    Attributes:
        version: its record, without tensors.
        manifest: where that record is.
        graph: where its graph is.
        parts: where its tensors are: in its own record, or in chunks, in order.
        bytes: of its tensors.
        parameters: numbers in them, buffers included; None: not known.
        is_current: it is the newest, with which workers act.
        is_best: an evaluator found none better.
        in_history: it stays when there is a newer, or a better one.
    """

    version: PolicyVersion
    manifest: SourceRef
    graph: SourceRef
    parts: tuple[SourceRef, ...]
    bytes: int
    parameters: int | None
    is_current: bool = False
    is_best: bool = False
    in_history: bool = False

    @property
    def ref(self) -> PolicyRef:
        """Its place in the order of all."""
        return PolicyRef(self.version.epoch, self.version.version)


@dataclass(frozen=True)
class _Told:
    """A version's record, or a chunk's, without tensors; how large those are."""

    record: Any
    where: SourceRef
    bytes: int
    parameters: int | None

    @property
    def ref(self) -> PolicyRef:
        return PolicyRef(self.record.epoch, self.record.version)


class Shelf:
    """The versions of one run.

    Attributes:
        run_id: of the run; records of others are passed over.
        refused: how many records cannot be read.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.refused = 0
        self._graphs: dict[str, SourceRef] = {}
        self._chunks: dict[tuple[int, int], _Told] = {}
        self._current: _Told | None = None
        self._best: _Told | None = None
        self._history: dict[PolicyRef, _Told] = {}

    def forget_policies(self) -> None:
        """Forget all of the topic of policies: it was made anew."""
        self._graphs, self._chunks = {}, {}
        self._current = self._best = None

    def forget_history(self) -> None:
        """Forget all of the history: it was made anew."""
        self._history = {}

    def take_policy(self, message: Message) -> None:
        """Note a record of the topic of policies; later ones come later.

        Chunks are there of versions that older releases published; others say where
        theirs are.
        """
        record = self._read(message, PolicyVersion, PolicyGraph, PolicyChunk)
        if isinstance(record, PolicyGraph):
            self._graphs[record.sha256] = _address(message)
        elif isinstance(record, PolicyChunk):
            small = replace(record, data=b"")
            told = _told(small, message, record.data)
            self._chunks[record.slot, record.chunk] = told
        elif record is not None:
            self._note(message.key, _told_version(record, message))

    def take_history(self, message: Message) -> None:
        """Note a record of the history."""
        record = self._read(message, PolicyVersion)
        if record is not None:
            told = _told_version(record, message)
            self._history.setdefault(told.ref, told)

    def _note(self, key: str, told: _Told) -> None:
        if key == BEST_KEY:
            self._best = told
        elif key == CURRENT_KEY and (
            # That of a learner which is superseded may come late.
            self._current is None or told.ref > self._current.ref
        ):
            self._current = told

    def versions(self) -> tuple[Kept, ...]:
        """Return all that can be had, oldest first."""
        known = self._known()
        found = (self._find(ref, *known[ref]) for ref in sorted(known))
        return tuple(each for each in found if each is not None)

    def lost(self) -> tuple[PolicyRef, ...]:
        """Return those that are told of, but whose graph or chunks are gone."""
        known = self._known()
        return tuple(
            ref for ref in sorted(known) if self._find(ref, *known[ref]) is None
        )

    def _known(self) -> dict[PolicyRef, list[_Told]]:
        """Return the records of each version, those of the topic of policies first."""
        known: dict[PolicyRef, list[_Told]] = {}
        for told in (self._current, self._best, *self._history.values()):
            if told is not None:
                known.setdefault(told.ref, []).append(told)
        return known

    def _find(self, ref: PolicyRef, *records: _Told) -> Kept | None:
        for told in records:
            version: PolicyVersion = told.record
            graph = self._graphs.get(version.graph_sha256)
            parts = self._parts(told)
            if graph is None or not parts:
                continue
            return Kept(
                version=version,
                manifest=told.where,
                graph=graph,
                parts=tuple(part.where for part in parts),
                bytes=sum(part.bytes for part in parts),
                parameters=parts[0].parameters,
                is_current=self._current is not None and ref == self._current.ref,
                is_best=self._best is not None and ref == self._best.ref,
                in_history=ref in self._history,
            )
        return None

    def _parts(self, told: _Told) -> list[_Told]:
        """Return what holds the tensors; nothing where a chunk is missing."""
        version: PolicyVersion = told.record
        if version.chunk_offsets:
            return [] if self._is_replaced(told) else _addressed_parts(told)
        if not version.num_chunks:
            return [told]
        if version.num_chunks > len(self._chunks):
            return []  # whatever number anybody may have written there
        chunks = [
            self._chunks.get((version.slot, i)) for i in range(version.num_chunks)
        ]
        found = [each for each in chunks if each is not None and each.ref == told.ref]
        return found if len(found) == len(chunks) else []

    def _is_replaced(self, told: _Told) -> bool:
        """Whether the chunks of a later version have taken the place of this one's.

        The learner alternates between two slots, and so does who publishes the best: a
        record of each of theirs is here.
        """
        slot = told.record.slot
        known = (self._current, self._best, *self._history.values())
        return any(
            other is not None
            and other.record.chunk_offsets
            and other.record.slot == slot
            and other.ref > told.ref
            for other in known
        )

    def _read(self, message: Message, *kinds: type) -> Any:
        if message.tombstone:
            return None
        try:
            record: Any = decode(message.value, *kinds)
        except SchemaError:
            self.refused += 1
            return None
        return record if record.run_id == self.run_id else None


def _address(message: Message) -> SourceRef:
    return SourceRef(message.topic, message.partition, message.offset)


def _told_version(version: PolicyVersion, message: Message) -> _Told:
    return _told(replace(version, tensors=b""), message, version.tensors)


def _addressed_parts(told: _Told) -> list[_Told]:
    """Return the chunks that a version's record names; the first tells of all."""
    version: PolicyVersion = told.record
    topic = topic_name(POLICY_CHUNKS, version.experiment)
    places = [SourceRef(topic, 0, offset) for offset in version.chunk_offsets]
    count = version.num_parameters or None
    sizes = [version.tensors_bytes, *([0] * (len(places) - 1))]
    return [
        _Told(version, where, size, count)
        for where, size in zip(places, sizes, strict=True)
    ]


def _told(small: Any, message: Message, data: bytes) -> _Told:
    return _Told(small, _address(message), len(data), count_numbers(data))
