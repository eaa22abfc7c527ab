from dataclasses import replace

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from infra.policies.chunks import addressed
from infra.policies.deltas import apply_delta, delta_of, keyframe_of
from infra.policies.errors import PolicyDamaged
from tests.unit.policies.test_chunks import DATA, LARGE

PAIRS = st.integers(0, 70).flatmap(
    lambda size: st.tuples(*[st.binary(min_size=size, max_size=size)] * 2)
)


@given(PAIRS)
def test_it_is_exact_whatever_the_bits_are(pair):
    data, keyframe = pair
    assert apply_delta(delta_of(data, keyframe), keyframe) == data


def test_odd_numbers_come_through_to_the_bit():
    odd = np.array([np.nan, -0.0, np.inf, 1e-45, -np.inf], np.float32)
    keyframe = np.ones(5, np.float32).tobytes()
    assert apply_delta(delta_of(odd.tobytes(), keyframe), keyframe) == odd.tobytes()


def test_what_stays_the_same_costs_next_to_nothing():
    keyframe = np.random.default_rng(0).normal(size=100_000).astype("<f4").tobytes()
    assert len(delta_of(keyframe, keyframe)) < 100


def claiming(size):
    """The begin of a frame that says how large it will be."""
    frame = zstandard.ZstdCompressor().compressobj(size=size)
    begin = frame.compress(b"\x00" * 39)
    return begin + frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


@pytest.mark.parametrize(
    "delta",
    [
        b"",
        b"no zstd",
        zstandard.compress(b"\x00" * 39),
        zstandard.compress(b"\x00" * 41),
        zstandard.compress(b"\x00" * (1 << 24)),  # a bomb
        delta_of(b"a" * 40, b"b" * 40)[:-1],
        claiming(1 << 50),
    ],
)
def test_what_is_no_delta_of_this_keyframe_is_refused(delta):
    with pytest.raises(PolicyDamaged, match="delta of a policy"):
        apply_delta(delta, b"k" * 40)


def test_a_keyframe_is_found_by_what_its_version_says():
    version = addressed(LARGE, DATA, (90,))
    assert keyframe_of(version) is None
    made = replace(version, keyframe_offsets=(7, 9), keyframe_sha256="a" * 64)
    base = keyframe_of(made)
    assert (base.chunk_offsets, base.num_chunks) == ((7, 9), 2)
    assert base.tensors_sha256 == "a" * 64 and base.tensors_bytes == len(DATA)
    assert keyframe_of(base) is None
