"""Tensors of a large version -> chunks, and back from their addresses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, TopicPartition

from infra.errors import TopicError
from infra.kafka.clients import make_consumer
from infra.kafka.reading import OUT_OF_RANGE, raw_until, to_message, watermarks
from infra.policies.deltas import apply_delta, keyframe_of
from infra.policies.errors import PolicyDamaged, replaced
from infra.policies.tensor_header import count_numbers
from infra.settings import Settings
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.records import PolicyChunk, PolicyVersion
from schemas.sizes import MAX_POLICY_BYTES, POLICY_CHUNK_BYTES, POLICY_INLINE_BYTES
from schemas.topics import POLICY_CHUNKS, topic_name

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TIMEOUT_S = 10.0
_CHUNK = "a chunk of a policy"


def cut(
    version: PolicyVersion, data: bytes, at_least: int | None = None
) -> list[PolicyChunk]:
    """Return the chunks of tensors that are too large for their record; [] if not.

    ``at_least``: what is larger is too large; None: POLICY_INLINE_BYTES.
    """
    if len(data) <= (POLICY_INLINE_BYTES if at_least is None else at_least):
        return []
    starts = range(0, len(data), POLICY_CHUNK_BYTES)
    return [
        PolicyChunk(
            experiment=version.experiment,
            run_id=version.run_id,
            epoch=version.epoch,
            version=version.version,
            slot=version.slot,
            chunk=number,
            data=data[start : start + POLICY_CHUNK_BYTES],
        )
        for number, start in enumerate(starts)
    ]


def addressed(
    version: PolicyVersion, data: bytes, offsets: tuple[int, ...]
) -> PolicyVersion:
    """Return a version's record that says where its chunks are, without tensors."""
    return replace(
        version,
        tensors=b"",
        num_chunks=len(offsets),
        chunk_offsets=offsets,
        tensors_bytes=len(data),
        num_parameters=count_numbers(data) or 0,
    )


def whole(version: PolicyVersion, data: bytes) -> PolicyVersion:
    """Return a version's record with all of its tensors inside."""
    return replace(
        version,
        tensors=data,
        num_chunks=0,
        chunk_offsets=(),
        tensors_bytes=0,
        num_parameters=0,
        keyframe_offsets=(),
        keyframe_sha256="",
    )


def check_address(version: PolicyVersion) -> None:
    """Raise PolicyDamaged unless a version's chunks can be what it says of them."""
    # A delta of a few bytes may make any number of them.
    most = MAX_POLICY_BYTES if version.keyframe_sha256 else version.num_chunks << 24
    if (
        len(version.chunk_offsets) != version.num_chunks
        or not 0 < version.tensors_bytes <= min(most, MAX_POLICY_BYTES)
        or not _SHA256.fullmatch(version.tensors_sha256)
    ):
        raise PolicyDamaged(
            f"policy version {version.version}: expected an offset for each of "
            f"{version.num_chunks} chunks, at most {MAX_POLICY_BYTES} bytes and a "
            f"sha256, found {len(version.chunk_offsets)} offsets, "
            f"{version.tensors_bytes} bytes, {version.tensors_sha256[:70]!r}"
        )


class ChunkReader:
    """Reads chunks by their addresses; between two versions it reads nothing.

    Attributes:
        fetched_bytes: of chunks, by this reader.
    """

    def __init__(self, settings: Settings, client_id: str) -> None:
        self.fetched_bytes = 0
        self._settings = settings
        self._client_id = client_id
        self._consumer: Consumer | None = None

    def read(self, version: PolicyVersion, keyframe: bytes | None = None) -> bytes:
        """Return a version's tensors, as its digest says they are.

        Args:
            version: its record.
            keyframe: the tensors of its keyframe; None: they are read where it has one.

        Raises:
            PolicyGone: a chunk was replaced since: there is a newer version.
            PolicyDamaged: its address, a chunk or the digest is wrong.
            KafkaUnavailable: the brokers do not answer.
        """
        check_address(version)
        if keyframe is None and (base := keyframe_of(version)) is not None:
            keyframe = self.read(base)
        data = b"".join(chunk.data for chunk in self._chunks(version))
        if keyframe is not None:
            data = apply_delta(data, keyframe)
        if hashlib.sha256(data).hexdigest() != version.tensors_sha256:
            raise PolicyDamaged(
                f"policy version {version.version}: expected chunks with the sha256 "
                f"{version.tensors_sha256[:12]}, found others"
            )
        return data

    def close(self) -> None:
        """Leave the broker."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _chunks(self, version: PolicyVersion) -> Iterator[PolicyChunk]:
        topic = topic_name(POLICY_CHUNKS, version.experiment)
        wanted = list(version.chunk_offsets)
        consumer = self._open()
        first, end = wanted[0], wanted[-1] + 1
        if end > watermarks(consumer, topic, 0, _TIMEOUT_S)[1]:
            raise replaced(f"{topic}[0]@{end - 1}", _CHUNK)  # the topic was made anew
        consumer.assign([TopicPartition(topic, 0, first)])
        try:
            for raw in raw_until(
                consumer, topic, 0, first, end, _TIMEOUT_S, error_of=_gone_or_unreadable
            ):
                if raw.offset() == wanted[0]:
                    wanted.pop(0)
                    yield self._decode(raw, version)
                if not wanted:
                    return
            raise replaced(f"{topic}[0]@{wanted[0]}", _CHUNK)
        finally:
            # Else the client reads on, and holds what nobody asks for.
            consumer.unassign()

    def _open(self) -> Consumer:
        if self._consumer is None:
            self._consumer = make_consumer(
                self._settings,
                group=None,
                client_id=self._client_id,
                overrides={"enable.partition.eof": True},
            )
        return self._consumer

    def _decode(self, raw: object, version: PolicyVersion) -> PolicyChunk:
        message = to_message(raw)
        try:
            chunk = decode(message.value, PolicyChunk)
        except SchemaError as exc:
            where = f"{message.topic}[0]@{message.offset}"
            raise PolicyDamaged(f"{where}: {exc}") from exc
        self.fetched_bytes += len(chunk.data)
        return chunk


def _gone_or_unreadable(topic: str, partition: int, error: KafkaError) -> TopicError:
    if error.code() in OUT_OF_RANGE:
        raise replaced(f"{topic}[{partition}]", _CHUNK)
    return TopicError(f"{topic}[{partition}] cannot be read: {error.str()}")
