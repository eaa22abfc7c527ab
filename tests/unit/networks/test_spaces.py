"""Which algorithm can act where."""

import numpy as np
import pytest

from learner.networks import UnsupportedSpace, box_action, discrete_action
from schemas.records import SpaceField
from schemas.tensors import pack
from tests.unit.learner_specs import box, discrete, environment


def bounded(low, high, dtype="<f4"):
    low, high = np.asarray(low, dtype), np.asarray(high, dtype)
    return SpaceField("arm", "box", dtype, low.shape, pack(low), pack(high))


@pytest.mark.parametrize(
    "action",
    [
        box((2,)),
        SpaceField("arm", "discrete", "<i8", (2,), n=(3,), start=(0,)),
        SpaceField("arm", "multi_discrete", "<i8", (2,), n=(2, 2), start=(0, 0)),
        SpaceField("arm", "multi_binary", "|i1", (2,)),
    ],
)
def test_actions_other_than_one_discrete_are_refused(action):
    with pytest.raises(
        UnsupportedSpace,
        match="learner.algorithm: expected one discrete action for dqn, found "
        f"{action.kind}.*in Test-v0",
    ):
        discrete_action(environment(action=action), "dqn")


@pytest.mark.parametrize(
    "action", [discrete(2), box((2,), "<i4"), box((0,)), box((2,), "|u1")]
)
def test_actions_other_than_one_box_of_floats_are_refused(action):
    with pytest.raises(UnsupportedSpace, match="expected one box of floats for ppo"):
        box_action(environment(action=action), "ppo")


@pytest.mark.parametrize(
    "action",
    [
        box((2,)),
        bounded([0, 0], [1, np.inf]),
        bounded([-np.inf], [1]),
        bounded([0, 1], [1, 1]),
        bounded([0, np.nan], [1, 1]),
        bounded([-3e38], [3e38]),  # whose distance is no float32
    ],
)
def test_an_action_without_bounds_is_refused_where_it_is_squashed_to_them(action):
    env = environment(action=action)
    with pytest.raises(UnsupportedSpace, match="expected finite bounds.*for sac"):
        box_action(env, "sac")
    assert box_action(env, "ppo") == action


def test_what_can_be_done_is_the_field():
    arm = bounded([[-1, 0]], [[1, 2]], "<f8")
    assert box_action(environment(action=arm), "sac") == arm
    assert discrete_action(environment(), "r2d2") == discrete(2)
