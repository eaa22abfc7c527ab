"""A version's tensors -> chunks in the log, a little at a time, and then its record.

Of a large one all but the copying of its tensors happens beside the learning: a thread
serialises them, and chunks are handed over only while few are under way.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import partial

import safetensors.numpy
from confluent_kafka import KafkaError, Message

from infra.kafka.delivery import Sender
from infra.policies.chunks import addressed, cut, whole
from infra.policies.deltas import delta_of
from infra.policies.keys import CHUNK_KEY
from infra.policies.precision import halved
from schemas.codec import encode
from schemas.records import PolicyVersion
from schemas.sizes import POLICY_CHUNK_BYTES, POLICY_INLINE_BYTES
from schemas.tensors import Array

Tensors = Mapping[str, Array]

# Half of what the client queues: who sends more would have to wait, and so would the
# credits behind it.
_MOST_UNDER_WAY_BYTES = 32 << 20


@dataclass(frozen=True)
class Serialised:
    """What is to be sent of a version.

    Attributes:
        version: its record, with its digest; of a large one without offsets.
        chunks: encoded, by key, in order; none of a small one.
        kept: its record with all tensors inside; None: it is too large for one.
        keyframe: its tensors, where later versions may be made from them.
    """

    version: PolicyVersion
    chunks: tuple[tuple[str, bytes], ...]
    kept: PolicyVersion | None
    keyframe: bytes | None = None


@dataclass(frozen=True)
class Keyframe:
    """A version in the log from which later ones are made.

    Attributes:
        record: where it is.
        data: its tensors.
    """

    record: PolicyVersion
    data: bytes


@dataclass(frozen=True)
class Encoding:
    """How tensors are to be written.

    Attributes:
        precision: of a spec: ``full`` or ``half``.
        is_keyframe: whether later versions are to be made from this one.
        keyframe: from which this one may be made.
    """

    precision: str = "full"
    is_keyframe: bool = False
    keyframe: Keyframe | None = None


def serialise(
    version: PolicyVersion, tensors: Tensors, encoding: Encoding
) -> Serialised:
    """Return what is to be sent.

    Args:
        version: its record, without tensors.
        tensors: by name; nobody may change them meanwhile.
        encoding: how they are to be written.
    """
    if encoding.precision == "half":
        tensors = halved(tensors)
    data = safetensors.numpy.save(dict(tensors))
    version = replace(version, tensors_sha256=hashlib.sha256(data).hexdigest())
    is_small = len(data) <= POLICY_CHUNK_BYTES
    kept = whole(version, data) if is_small else None
    chunks = cut(version, data)
    if not chunks:
        return Serialised(whole(version, data), (), kept)
    record = addressed(version, data, ())
    frame = encoding.keyframe
    if frame is not None and len(frame.data) == len(data):
        chunks = cut(version, delta_of(data, frame.data), at_least=0)
        record = replace(
            record,
            keyframe_offsets=frame.record.chunk_offsets,
            keyframe_sha256=frame.record.tensors_sha256,
        )
    encoded = [(f"{CHUNK_KEY}/{c.slot}/{c.chunk}", encode(c)) for c in chunks]
    keyframe = data if encoding.is_keyframe else None
    return Serialised(record, tuple(encoded), kept, keyframe)


def serialising(
    executor: Executor, version: PolicyVersion, tensors: Tensors, encoding: Encoding
) -> Future[Serialised]:
    """Return what ``serialise`` gives: of a large version in another thread."""
    if sum(each.nbytes for each in tensors.values()) > POLICY_INLINE_BYTES:
        return executor.submit(serialise, version, tensors, encoding)
    future: Future[Serialised] = Future()
    future.set_result(serialise(version, tensors, encoding))
    return future


class PolicyDelivery:
    """A version on its way; ``advance`` brings it further.

    Its record follows its chunks: it says their offsets, which are known once they are
    in the log. So who reads it finds them all.
    """

    def __init__(self, found: Future[Serialised], sender: Sender, topic: str) -> None:
        """Begin; ``topic`` is that of the chunks."""
        self._future = found
        self._sender = sender
        self._topic = topic
        self._left: deque[tuple[str, bytes]] | None = None
        self._offsets: dict[int, int] = {}

    def advance(self) -> Serialised | None:
        """Send what there is room for; return all that is left to send at the end.

        Never waits.

        Raises:
            DeliveryError: a chunk was refused for good.
        """
        self._sender.poll()
        if not self._future.done():
            return None
        found = self._future.result()
        if self._left is None:
            self._left = deque(found.chunks)
        while self._left and self._has_room():
            key, value = self._left.popleft()
            number = len(found.chunks) - len(self._left) - 1
            delivered = partial(self._delivered, number)
            self._sender.send(self._topic, value, key, 0, delivered)
        if len(self._offsets) < len(found.chunks):
            return None
        if not found.chunks:
            return found
        offsets = tuple(offset for _, offset in sorted(self._offsets.items()))
        record = replace(found.version, num_chunks=len(offsets), chunk_offsets=offsets)
        return replace(found, version=record, chunks=())

    def _has_room(self) -> bool:
        return self._sender.counts.in_flight_bytes < _MOST_UNDER_WAY_BYTES

    def _delivered(
        self, number: int, error: KafkaError | None, message: Message
    ) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            self._offsets[number] = offset
