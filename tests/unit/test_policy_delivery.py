"""What is sent of a version, and in which order; the log itself is tested elsewhere."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load

from infra.policies import chunks as chunks_module
from infra.policies.deltas import apply_delta
from learner import policy_delivery
from learner.policy_delivery import Encoding, Keyframe, serialise
from schemas.codec import decode
from schemas.records import PolicyChunk
from tests.unit.policies.records import version

SMALL = {"w": np.arange(6, dtype=np.float32), "n": np.array([3], np.int64)}
LARGE = {"w": np.linspace(-1, 1, 100_000, dtype=np.float32)}


def test_a_small_version_is_one_record_with_all_inside():
    found = serialise(version(4), SMALL, Encoding())
    assert found.chunks == () and found.kept == found.version
    assert load(found.version.tensors)["w"].tolist() == [0, 1, 2, 3, 4, 5]
    digest = hashlib.sha256(found.version.tensors).hexdigest()
    assert found.version.tensors_sha256 == digest


def test_a_policy_delivery_is_chunks_and_a_record_without_tensors(monkeypatch):
    monkeypatch.setattr(chunks_module, "POLICY_CHUNK_BYTES", 150_000)
    found = serialise(version(4, slot=1), LARGE, Encoding())
    assert [key for key, _ in found.chunks] == [f"chunk/1/{i}" for i in range(3)]
    parts = [decode(value, PolicyChunk) for _, value in found.chunks]
    data = b"".join(part.data for part in parts)
    record = found.version
    assert (record.tensors, record.tensors_bytes) == (b"", len(data))
    assert record.tensors_sha256 == hashlib.sha256(data).hexdigest()
    assert load(data)["w"].tobytes() == LARGE["w"].tobytes()
    assert found.kept is not None and found.kept.tensors == data


def test_what_no_record_holds_is_not_kept_whole(monkeypatch):
    monkeypatch.setattr(policy_delivery, "POLICY_CHUNK_BYTES", 1000)
    assert serialise(version(4), LARGE, Encoding()).kept is None


@pytest.mark.parametrize(("precision", "size"), [("full", 400_000), ("half", 200_000)])
def test_half_precision_is_half_the_bytes_and_its_digest_is_of_those(precision, size):
    found = serialise(version(4), LARGE, Encoding(precision))
    record = found.version
    assert bool(found.chunks) is (precision == "full"), "below 256 kB it is one record"
    data = found.kept.tensors
    assert size < len(data) < size + 200
    assert hashlib.sha256(data).hexdigest() == record.tensors_sha256
    assert load(data)["w"].dtype == {"full": "<f4", "half": "<f2"}[precision]


def test_a_version_is_made_from_the_keyframe_before_it():
    first = serialise(version(16, slot=5), LARGE, Encoding(is_keyframe=True))
    assert not first.version.keyframe_sha256
    record = replace(first.version, chunk_offsets=(7,), num_chunks=1)
    changed = {"w": LARGE["w"].copy()}
    changed["w"][::50] += 1e-3
    encoding = Encoding(keyframe=Keyframe(record, first.keyframe))
    found = serialise(version(17), changed, encoding)
    assert found.keyframe is None
    assert found.version.keyframe_offsets == (7,)
    assert found.version.keyframe_sha256 == record.tensors_sha256
    ((_, value),) = found.chunks
    delta = decode(value, PolicyChunk).data
    data = apply_delta(delta, first.keyframe)
    assert data == found.kept.tensors and len(delta) < len(data) / 10
    assert hashlib.sha256(data).hexdigest() == found.version.tensors_sha256


def test_tensors_of_another_size_are_sent_whole():
    first = serialise(version(16), LARGE, Encoding(is_keyframe=True))
    keyframe = Keyframe(replace(first.version, chunk_offsets=(7,)), first.keyframe)
    other = {"w": np.ones(90_000, np.float32)}
    assert not serialise(
        version(17), other, Encoding(keyframe=keyframe)
    ).version.keyframe_sha256
