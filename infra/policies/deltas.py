"""Tensors -> what is not the same as in a keyframe, and back, to the bit; pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from infra.policies.errors import PolicyDamaged
from schemas.byte_places import by_number, by_place
from schemas.compression import zstd, zstd_opened
from schemas.errors import SchemaError
from schemas.records import PolicyVersion

# Bytes of a float32: those of the same place lie together, the equal ones in runs.
_WIDTH = 4


def delta_of(data: bytes, keyframe: bytes) -> bytes:
    """Return what makes ``data`` of a keyframe of the same size.

    The bits that differ, byte by byte of each number, compressed.
    """
    differing = np.frombuffer(data, np.uint8) ^ np.frombuffer(keyframe, np.uint8)
    return zstd(by_place(differing, _WIDTH).data)


def apply_delta(delta: bytes, keyframe: bytes) -> bytes:
    """Return the tensors that a delta was made of.

    Raises:
        PolicyDamaged: it is none of a keyframe of this size.
    """
    size = len(keyframe)
    try:
        found = zstd_opened(delta, size)
    except SchemaError as exc:
        raise PolicyDamaged(f"delta of a policy: {exc}") from exc
    if len(found) != size:
        raise PolicyDamaged(
            f"delta of a policy: expected {size} bytes, found {len(found)}"
        )
    differing = by_number(np.frombuffer(found, np.uint8), _WIDTH)
    return (differing ^ np.frombuffer(keyframe, np.uint8)).tobytes()


def keyframe_of(version: PolicyVersion) -> PolicyVersion | None:
    """Return the address of a version's keyframe; None: it needs none."""
    if not version.keyframe_sha256:
        return None
    return replace(
        version,
        num_chunks=len(version.keyframe_offsets),
        chunk_offsets=version.keyframe_offsets,
        tensors_sha256=version.keyframe_sha256,
        keyframe_offsets=(),
        keyframe_sha256="",
    )
