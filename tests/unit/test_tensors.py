import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from schemas.errors import SchemaError
from schemas.tensors import MAX_TENSOR_BYTES, Tensor, pack

DTYPES = ["|b1", "|u1", "<i2", "<i8", "<u4", "<f2", "<f4", "<f8", "<c8", ">f4", ">i8"]


@given(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4))
    ),
    st.sampled_from(["RAW", "ZSTD"]),
)
def test_arrays_come_back_bit_exact(array, encoding):
    found = pack(array, encoding).array()
    little = array.astype(array.dtype.newbyteorder("<"))
    assert found.shape == array.shape
    assert found.dtype == little.dtype
    assert found.tobytes() == little.tobytes()


def test_a_raw_tensor_is_a_view_that_cannot_be_written():
    tensor = pack(np.arange(4))
    array = tensor.array()
    assert np.shares_memory(array, np.frombuffer(tensor.data, "<i8"))
    with pytest.raises(ValueError):
        array[0] = 1


def test_doubles_keep_their_last_digits():
    values = np.array([0.1, 2.0**53 + 1, np.nan, -0.0, np.inf])
    assert pack(values).array().tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (Tensor("|O8", (1,), "RAW", b"12345678"), "little-endian number"),
        (Tensor("<U4", (1,), "RAW", b"x" * 16), "little-endian number"),
        (Tensor("<M8[s]", (1,), "RAW", b"x" * 8), "little-endian number"),
        (Tensor(">f4", (1,), "RAW", b"1234"), "little-endian number"),
        (Tensor("<f4", (2,), "RAW", b"1234"), "expected 8 bytes, found 4"),
        (Tensor("<f4", (-1,), "RAW", b"1234"), "none negative"),
        (Tensor("|u1", (1,) * 17, "RAW", b"1"), "at most 16 sizes"),
        (Tensor("|u1", (2**40, 2**40), "RAW", b""), "at most"),
        (Tensor("<f4", (1,), "ZSTD", b"not zstd"), "expected zstd"),
        (Tensor("<f4\n", (1,), "RAW", b"1234"), "little-endian number"),
        (Tensor("<f4", (1, 0, 2**62, 2**62), "RAW", b""), "at most"),
    ],
)
def test_a_bad_tensor_says_what_was_expected(tensor, says):
    with pytest.raises(SchemaError, match=says):
        tensor.array()


def test_a_compressed_bomb_is_not_inflated_beyond_its_header():
    bomb = pack(np.zeros(MAX_TENSOR_BYTES, np.uint8), "ZSTD")
    claimed = Tensor("|u1", (10,), "ZSTD", bomb.data)
    with pytest.raises(SchemaError, match="expected 10 bytes, found 11"):
        claimed.array()


def test_objects_are_refused_when_packed():
    with pytest.raises(SchemaError, match="little-endian number"):
        pack(np.array([object()]))
