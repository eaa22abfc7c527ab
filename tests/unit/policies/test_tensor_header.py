"""How many numbers tensors hold, from the first bytes of them."""

import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from infra.policies.tensor_header import MOST, count_numbers

SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@given(st.dictionaries(st.text("abc.", min_size=1, max_size=6), SHAPES, max_size=5))
def test_it_is_the_sum_of_all_shapes(shapes):
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    data = save(arrays, metadata={"by": "nobody"})
    expected = sum(math.prod(shape) for shape in shapes.values())
    assert count_numbers(data) == expected
    header = 8 + struct.unpack("<Q", data[:8])[0]
    assert count_numbers(data[:header]) == expected, "no tensor is needed"
    assert count_numbers(data[: header - 1]) is None


def with_header(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([2**31, 2**53, 10**400, -1])
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["shape", "a", "__metadata__"]), inner)
    ),
    max_leaves=12,
)
ENTRY = st.fixed_dictionaries({"shape": st.lists(JSON, max_size=4) | JSON})


@given(
    st.binary(max_size=80)
    | st.binary(max_size=80).map(with_header)
    | st.dictionaries(st.text("ab", max_size=2), ENTRY | JSON, max_size=4).map(
        lambda header: with_header(json.dumps(header).encode())
    )
)
def test_anything_else_says_nothing_or_a_number(data):
    found = count_numbers(data)
    assert found is None or (type(found) is int and 0 <= found <= MOST)


@pytest.mark.parametrize(
    "shape",
    [
        *("[1e999]", "[-1e999]", "[NaN]", "[2.0]", "[true]", "[-1]", '["abc", 2]'),
        *("null", '"12"', "{}", "[[1]]", f"[{MOST + 1}]", f"[{MOST}, 2]"),
        *(f"[1{'0' * 4000}, 1{'0' * 4000}]", f"[1{'0' * 9000}]", "[" * 100_000),
    ],
)
def test_what_is_no_shape_says_nothing(shape):
    assert count_numbers(with_header(b'{"a":{"shape":%b}}' % shape.encode())) is None


def test_all_tensors_together_are_not_more_than_there_can_be():
    whole, one = {"shape": [MOST]}, {"shape": []}
    assert count_numbers(with_header(json.dumps({"a": whole}).encode())) == MOST
    both = json.dumps({"a": whole, "b": one}).encode()
    assert count_numbers(with_header(both)) is None


@pytest.mark.parametrize(
    "header", [[], 3, {"a": 1}, {"a": {}}, {"a": {"shape": "xy"}}, {"a": {"shape": 1}}]
)
def test_a_header_of_another_kind_says_nothing(header):
    assert count_numbers(with_header(json.dumps(header).encode())) is None
