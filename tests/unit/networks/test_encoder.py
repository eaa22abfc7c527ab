"""Fields that are no images: cast, one-hot, scaled, joined."""

import pytest
import torch

from learner.networks import Encoder, UnsupportedSpace
from schemas.errors import SchemaError
from schemas.records import SpaceField
from schemas.sizes import stacked
from tests.unit.learner_specs import box, discrete


def encode(field, values, scale=()):
    return Encoder((field,), scale)({field.name: torch.tensor(values)}).tolist()


def test_images_are_scaled_once():
    assert encode(box((2, 1), "|u1"), [[[0], [255]]]) == [[0.0, 1.0]]


def test_doubles_are_cast_to_float32():
    assert encode(box((1,), "<f8"), [[0.5]]) == [[0.5]]


def test_discrete_values_become_one_hot_from_their_start():
    assert encode(discrete(3, start=2), [2, 4]) == [[1, 0, 0], [0, 0, 1]]


def test_a_value_outside_its_range_is_nobodys_class():
    assert encode(discrete(3, start=2), [1, 5]) == [[0, 0, 0], [0, 0, 0]]


def test_multi_discrete_values_become_one_hot_each():
    field = SpaceField("", "multi_discrete", "<i8", (2,), n=(2, 3), start=(0, 5))
    assert encode(field, [[1, 6]]) == [[0, 1, 0, 1, 0]]


def test_stacked_discrete_frames_become_one_hot_each():
    field = stacked(discrete(2), 3)
    assert encode(field, [[0, 1, 1]]) == [[1, 0, 0, 1, 0, 1]]


def test_stacked_multi_discrete_frames_become_one_hot_each():
    field = SpaceField("", "multi_discrete", "<i8", (2,), n=(2, 3), start=(0, 0))
    field = stacked(field, 2)
    assert encode(field, [[[1, 2], [0, 0]]]) == [[0, 1, 0, 0, 1, 1, 0, 1, 0, 0]]


def test_fields_are_joined_in_the_order_of_the_description_not_of_the_mapping():
    encoder = Encoder((box((1,), name="b"), box((1,), name="a")), ())
    values = {"a": torch.tensor([[1.0]]), "b": torch.tensor([[2.0]])}
    assert encoder(values).tolist() == [[2.0, 1.0]]


def test_observation_scale_multiplies_each_feature():
    assert encode(box((2,)), [[1.0, 1.0]], (2.0, 3.0)) == [[2.0, 3.0]]
    assert encode(box((2,)), [[1.0, 1.0]], (4.0,)) == [[4.0, 4.0]]


def test_observation_scale_of_another_length_is_refused():
    with pytest.raises(
        UnsupportedSpace, match=r"expected 0, 1 or 4 numbers, .* found 3"
    ):
        Encoder((box((4,)),), (1.0, 2.0, 3.0))


def test_unknown_kind_of_observation_is_refused_with_its_name():
    field = SpaceField("head/tail", "sequence", "<f4", ())
    with pytest.raises(SchemaError, match="head/tail.*sequence"):
        Encoder((field,), ())
