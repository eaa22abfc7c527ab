import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from infra.policies import chunks
from infra.policies.chunks import addressed, check_address, cut, whole
from infra.policies.errors import PolicyDamaged
from schemas.sizes import POLICY_INLINE_BYTES
from tests.unit.policies.records import version

DATA = save({"w": np.arange(100_000, dtype=np.float32)})
LARGE = version(5, slot=1, tensors_sha256=hashlib.sha256(DATA).hexdigest())


def test_what_is_small_stays_in_its_record():
    assert cut(LARGE, b"x" * POLICY_INLINE_BYTES) == []
    assert len(cut(LARGE, b"x" * (POLICY_INLINE_BYTES + 1))) == 1


@given(st.integers(0, 100), st.integers(1, 40))
def test_chunks_in_their_order_are_the_tensors(size, chunk_bytes):
    data = bytes(range(size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "POLICY_INLINE_BYTES", 10)
        patch.setattr(chunks, "POLICY_CHUNK_BYTES", chunk_bytes)
        parts = cut(LARGE, data)
    assert bool(parts) is (size > 10)
    assert b"".join(part.data for part in parts) == (data if parts else b"")
    assert [part.chunk for part in parts] == list(range(len(parts)))
    assert {(p.epoch, p.version, p.slot) for p in parts} <= {(0, 5, 1)}


def test_a_record_says_where_its_chunks_are_and_what_they_hold():
    record = addressed(LARGE, DATA, (7, 9))
    assert (record.tensors, record.num_chunks) == (b"", 2)
    assert (record.tensors_bytes, record.num_parameters) == (len(DATA), 100_000)
    check_address(record)
    again = whole(record, DATA)
    assert again == whole(LARGE, DATA) and again.tensors == DATA


@pytest.mark.parametrize(
    "wrong",
    [
        {"chunk_offsets": (7,)},
        {"num_chunks": 2**31 - 1},
        {"tensors_bytes": 0},
        {"tensors_bytes": 2**40},
        {"tensors_bytes": 40 << 20},  # two chunks cannot hold it
        {"tensors_sha256": "../" + "a" * 61},
        {"tensors_sha256": "A" * 64},
        {"tensors_sha256": "a" * 64 + "\n"},
    ],
)
def test_a_record_that_cannot_be_right_names_no_file_and_fetches_nothing(wrong):
    with pytest.raises(PolicyDamaged, match="expected an offset for each"):
        check_address(replace(addressed(LARGE, DATA, (7, 9)), **wrong))
