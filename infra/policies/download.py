"""A version that is kept -> its graph and tensors, whole and as they were published."""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from infra.errors import OffsetError
from infra.kafka.reading import read_to_end
from infra.policies.chunks import ChunkReader, whole
from infra.policies.errors import PolicyDamaged, replaced
from infra.policies.shelf import Kept
from infra.settings import Settings
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.records import PolicyChunk, PolicyGraph, PolicyVersion, SourceRef

Record = TypeVar("Record", PolicyChunk, PolicyGraph, PolicyVersion)


@dataclass(frozen=True)
class Downloaded:
    """A policy with all that it needs.

    Attributes:
        graph: its graph's record.
        version: its record, with all tensors inside, also of one that came in chunks.
    """

    graph: PolicyGraph
    version: PolicyVersion


def download(settings: Settings, kept: Kept) -> Downloaded:
    """Read a version, and verify what was read.

    Raises:
        PolicyGone: it was replaced, and compacted away, since it was seen.
        PolicyDamaged: it is not what its digests say.
    """
    graph = _read(settings, kept.graph, PolicyGraph)
    version = _read(settings, kept.manifest, PolicyVersion)
    tensors = version.tensors
    if version.chunk_offsets:
        with closing(ChunkReader(settings, f"{version.experiment}-download")) as reader:
            tensors = reader.read(version)
    elif version.num_chunks:
        chunks = (_read(settings, part, PolicyChunk) for part in kept.parts)
        tensors = b"".join(chunk.data for chunk in chunks)
    name = f"policy version {version.version} (epoch {version.epoch})"
    check_sha256(f"graph of {name}", graph.onnx, version.graph_sha256)
    check_sha256(f"tensors of {name}", tensors, version.tensors_sha256)
    return Downloaded(graph, whole(version, tensors))


def check_sha256(what: str, data: bytes, expected: str) -> None:
    """Raise PolicyDamaged unless the bytes have this digest."""
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise PolicyDamaged(
            f"{what}: expected the sha256 {expected[:12]}, found {found[:12]}",
            "choose another version with --version",
        )


def _read(settings: Settings, where: SourceRef, kind: type[Record]) -> Record:
    """Return the record at an address."""
    gone = replaced(where, f"a {kind.__name__}")
    found: Any = read_to_end(settings, where.topic, where.partition, where.offset)
    with closing(found) as messages:
        try:
            message = next(messages, None)
        except OffsetError as exc:
            raise gone from exc
    if message is None or message.offset != where.offset:
        raise gone
    try:
        return decode(message.value, kind)
    except SchemaError as exc:
        raise PolicyDamaged(f"{where}: {exc}") from exc
