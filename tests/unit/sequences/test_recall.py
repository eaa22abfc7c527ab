import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from producers.env_recipe import EnvRecipe
from producers.sample_envs import RECALL, VectorRecall
from schemas.experiment import EnvSpec


def test_a_worker_finds_it_without_any_setting():
    recipe = EnvRecipe(EnvSpec(id=RECALL, kwargs={"cues": 3, "delay": 2}))
    env = recipe.make()
    assert env.observation_space.shape == (7,) and env.action_space.n == 3
    made = gymnasium.make_vec(RECALL, 4, vectorization_mode="vector_entry_point")
    assert isinstance(made, VectorRecall)
    assert made.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_an_episode_shows_the_cue_distracts_and_asks():
    envs = VectorRecall(64, cues=3, delay=2)
    first, _ = envs.reset(seed=1)
    cues = first.argmax(1)
    assert set(cues.tolist()) == {0, 1, 2}
    for _ in range(2):
        seen, rewards, terminated, truncated, _ = envs.step(cues)
        assert envs.observation_space.contains(seen)
        assert set(seen.argmax(1).tolist()) == {3, 4, 5}
        assert not rewards.any() and not terminated.any() and not truncated.any()
    seen, rewards, terminated, *_ = envs.step(cues)
    assert (seen.argmax(1) == 6).all() and not rewards.any()
    answers = np.where(np.arange(64) % 2, cues, (cues + 1) % 3)
    seen, rewards, terminated, *_ = envs.step(answers)
    assert rewards.tolist() == [0.0, 1.0] * 32 and terminated.all()
    assert not seen.any()
    seen, rewards, terminated, *_ = envs.step(answers)  # the reset row
    assert not rewards.any() and not terminated.any()
    assert set(seen.argmax(1).tolist()) == {0, 1, 2}


def test_environments_reset_one_by_one():
    envs = VectorRecall(2, cues=2, delay=0)
    envs.reset(seed=1)
    envs._steps[1] = 1  # it is asked one step earlier
    _, _, terminated, *_ = envs.step(np.zeros(2, int))
    assert terminated.tolist() == [False, True]
    seen, _, terminated, *_ = envs.step(np.zeros(2, int))
    assert terminated.tolist() == [True, False]
    assert seen[0].tolist() == [0] * 5 and seen[1, :2].sum() == 1


def test_seeds_repeat_and_one_alone_does_the_same():
    alone = gymnasium.make(RECALL, delay=3)
    seen, _ = alone.reset(seed=7)
    envs = VectorRecall(1, delay=3)
    others, _ = envs.reset(seed=7)
    for _ in range(5):
        assert seen.tolist() == others[0].tolist()
        seen, reward, terminated, _, _ = alone.step(1)
        others, rewards, ends, *_ = envs.step([1])
        assert (reward, terminated) == (rewards[0], ends[0])
    assert terminated


@pytest.mark.parametrize("kwargs", [{"cues": 1}, {"delay": -1}])
def test_arguments_that_make_no_task_are_refused(kwargs):
    with pytest.raises(ValueError, match="cues >= 2 and delay >= 0"):
        VectorRecall(1, **kwargs)
