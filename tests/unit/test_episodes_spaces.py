"""Spaces rebuilt from what workers describe, compared with what they described."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from archive.spaces import NoSuchSpace, nest, rebuild, unnest
from producers.spaces import describe

FLOATS = (np.float16, np.float32, np.float64)
INTS = (np.int8, np.uint8, np.int16, np.int32)
SHAPES = st.sampled_from([(), (1,), (3,), (2, 3)])


@st.composite
def leaves(draw):
    shape = draw(SHAPES)
    kind = draw(st.sampled_from("box ibox discrete multi binary".split()))
    if kind == "box":
        low = draw(st.sampled_from([-np.inf, -1.5, 0.0]))
        high = draw(st.sampled_from([np.inf, 0.0, 2.5]))
        return spaces.Box(low, high, shape, draw(st.sampled_from(FLOATS)))
    if kind == "ibox":
        dtype = draw(st.sampled_from(INTS))
        return spaces.Box(0, np.iinfo(dtype).max, shape, dtype)
    if kind == "discrete":
        dtype = draw(st.sampled_from([np.int16, np.int64]))
        return spaces.Discrete(
            draw(st.integers(1, 9)), start=draw(st.integers(-3, 3)), dtype=dtype
        )
    if kind == "multi":
        shape = shape or (2,)
        n = np.full(shape, draw(st.integers(1, 5)))
        start = np.full(shape, draw(st.integers(-2, 2)))
        return spaces.MultiDiscrete(n, np.int32, start=start)
    return spaces.MultiBinary(shape if len(shape) > 1 else 3)


NESTED = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=12).map(spaces.Tuple),
        st.dictionaries(
            st.sampled_from(["a", "left", "x10", "ø"]), inner, min_size=1, max_size=4
        ).map(spaces.Dict),
    ),
    max_leaves=14,
)


@given(NESTED)
@settings(max_examples=200, deadline=None)
def test_a_space_comes_back_as_it_was_described(space):
    fields = describe(space)
    again = rebuild(fields)
    assert again == space
    assert describe(again) == fields


@given(NESTED, st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_values_by_name_nest_as_the_space_does_and_back(space, count):
    batch = batch_space(space, count)
    values = [space.sample() for _ in range(count)]
    stacked = concatenate(space, values, create_empty_array(space, count))
    fields = describe(space)
    leaves = unnest(stacked, fields, count)
    assert list(leaves) == [field.name for field in fields]
    for field in fields:
        assert leaves[field.name].dtype == np.dtype(field.dtype)
    assert nest(space, leaves) in batch
    again = unnest(nest(space, leaves), fields, count)
    for name, leaf in leaves.items():
        np.testing.assert_array_equal(again[name], leaf)


def test_what_is_no_space_is_refused_with_its_name():
    (field,) = describe(spaces.Discrete(3))
    for changes, problem in [
        ({"kind": "graph"}, "expected box, discrete"),
        ({"n": ()}, "expected a discrete that Gymnasium can make"),
        ({"n": (-1,)}, "expected a discrete that Gymnasium can make"),
        ({"kind": "box"}, "expected box, discrete"),
    ]:
        odd = dataclasses.replace(field, name="pair/0", **changes)
        with pytest.raises(NoSuchSpace, match=f"pair/0: {problem}"):
            rebuild([odd])


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("a", "a")])
def test_two_fields_of_one_name_are_refused(names):
    (field,) = describe(spaces.Discrete(3))
    with pytest.raises(NoSuchSpace, match="expected a name for each field"):
        rebuild([dataclasses.replace(field, name=name) for name in names])


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (np.zeros((2, 3), "<f8"), r"a: expected <i8\[2\], found float64\[2, 3\]"),
        (np.zeros(2, "<f8"), r"a: expected <i8\[2\], found float64\[2\]"),
        (["x", "y"], r"a: expected <i8\[2\], found <U1\[2\]"),
        (np.array([None, None]), r"a: expected <i8\[2\], found object\[2\]"),
    ],
)
def test_a_value_of_another_space_is_refused(value, problem):
    fields = describe(spaces.Dict(a=spaces.Discrete(3)))
    with pytest.raises(NoSuchSpace, match=problem):
        unnest({"a": value}, fields, 2)
    with pytest.raises(NoSuchSpace, match="a: expected a value, found none"):
        unnest({"b": value}, fields, 2)
