"""How many numbers tensors hold, from the first bytes of them."""

import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from infra.policies.tensor_header import count_numbers

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


@given(st.binary(max_size=80))
def test_anything_else_says_nothing_or_a_number(data):
    found = count_numbers(data)
    assert found is None or found >= 0


@pytest.mark.parametrize(
    "header", [[], 3, {"a": 1}, {"a": {}}, {"a": {"shape": "xy"}}, {"a": {"shape": 1}}]
)
def test_a_header_of_another_kind_says_nothing(header):
    text = json.dumps(header).encode()
    assert count_numbers(struct.pack("<Q", len(text)) + text) is None
