"""Environments whose every number can be worked out by hand."""

import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class E3(gymnasium.Env):
    """Episode k: observations 10k, 10k+1, 10k+2, 10k+3; reward 1; truncated at 3."""

    observation_space = spaces.Box(0, 1e6, (1,), np.float64)
    action_space = spaces.Discrete(2)
    count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count += 1
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        return self._observe(), 1.0, False, self.steps == 3, {}

    def _observe(self):
        return np.array([10.0 * self.count + self.steps])


class E3Vector(VectorEnv):
    """E3 as a vector environment that resets itself in the next step."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs=1, max_episode_steps=None):
        self.num_envs = num_envs
        self.single_observation_space = E3.observation_space
        self.single_action_space = E3.action_space
        self.observation_space = batch_space(E3.observation_space, num_envs)
        self.action_space = batch_space(E3.action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = np.ones(self.num_envs)
        self.steps = np.zeros(self.num_envs)
        return self._observe(), {}

    def step(self, actions):
        over = self.steps == 3
        self.count[over] += 1
        self.steps = np.where(over, 0, self.steps + 1)
        rewards = np.where(over, 0.0, 1.0)
        none = np.zeros(self.num_envs, np.bool_)
        return self._observe(), rewards, none, self.steps == 3, {}

    def _observe(self):
        return (10.0 * self.count + self.steps)[:, None]


class E3SameStep(E3Vector):
    """Says that it resets in the same step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}


class E3Lying(E3Vector):
    """Says next step, and resets in the same step, without final observation."""

    def step(self, actions):
        self.steps = self.steps + 1
        over = self.steps == 3
        self.count[over] += 1
        self.steps[over] = 0
        none = np.zeros(self.num_envs, np.bool_)
        return self._observe(), np.ones(self.num_envs), none, over, {}


class E3LyingWithInfos(E3Lying):
    """The same, with the final observations in its infos."""

    def step(self, actions):
        *row, _ = super().step(actions)
        return *row, {"final_obs": np.full((self.num_envs, 1), 13.0)}


class E3Disabled(E3Vector):
    """Leaves resets to whoever steps it."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}


class E3Undeclared(E3Vector):
    """Does not say when it resets."""

    metadata: dict[str, Any] = {}


class Misbehaving(gymnasium.Env):
    """Counts its steps; ``bad_seed`` makes the episode with that seed go wrong.

    ``how``: raise, exit or hang in step 4 of that episode; or, whatever the seed,
    fail at every reset; raise, exit or block in the constructor; or reset within step
    2, or within the last one.
    """

    observation_space = spaces.Box(0, 1e6, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, how="", bad_seed=-1):
        if how == "raise-at-start":
            raise ValueError("boom at start")
        if how == "exit-at-start":
            os._exit(3)
        if how == "hang-at-start":
            time.sleep(1e6)
        self.how = how
        self.bad_seed = bad_seed
        self.closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.how == "raise-at-reset":
            raise ValueError("boom at reset")
        self.bad = seed == self.bad_seed
        self.steps = 0
        return np.array([0.0]), {}

    def step(self, action):
        self.steps += 1
        if self.how == "reset-in-step" and self.steps == 2:
            self.reset()
        if self.how == "reset-at-end" and self.steps == 10:
            observation, _ = self.reset()
            return observation, 1.0, True, False, {}
        if self.bad and self.steps == 4:
            self._go_wrong()
        return np.array([float(self.steps)]), 1.0, self.steps == 10, False, {}

    def _go_wrong(self):
        if self.how == "raise":
            raise ValueError("boom")
        if self.how == "exit":
            os._exit(1)
        if self.how == "hang":
            while True:
                try:
                    time.sleep(1e6)
                except Exception:
                    pass  # as careless as they come

    def close(self):
        self.closed += 1


class NanEnds(gymnasium.Env):
    """Its first episode is one step without a number; in its second it raises."""

    observation_space = spaces.Box(0, 1e6, (1,), np.float64)
    action_space = spaces.Discrete(2)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes += 1
        return np.array([0.0]), {}

    def step(self, action):
        if self.episodes == 2:
            raise ValueError("boom")
        return np.array([0.0]), np.nan, True, False, {}


class OddRewards(gymnasium.Env):
    """Gives its rewards as one kind of number after the other."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(2)
    rewards: list[Any] = [
        np.float32(0.5),
        np.float64(0.1),
        2,
        np.array(3.0),
        np.array([4.0]),
        True,
        float("nan"),
        float("inf"),
    ]

    def __init__(self, wide=False):
        self.wide = wide

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return 0, {}

    def step(self, action):
        reward = np.ones(2) if self.wide else self.rewards[self.steps % 8]
        self.steps += 1
        return self.steps % 3, reward, False, False, {}


class Nested(gymnasium.Env):
    """Observations and actions of every kind of space, drawn from its own RNG."""

    observation_space = spaces.Dict(
        {
            "b": spaces.Box(-1e300, 1e300, (2,), np.float64),
            "a": spaces.Tuple(
                (spaces.Discrete(5, start=-2), spaces.MultiBinary([2, 2]))
            ),
            "image": spaces.Box(0, 255, (3, 4, 4), np.uint8),
        }
    )
    action_space = spaces.Dict(
        {
            "move": spaces.Discrete(3, start=7),
            "aim": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "keys": spaces.MultiDiscrete([2, 3]),
        }
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(
            {k: np.asarray(v) if k != "move" else v for k, v in action.items()}
        ), action
        return self.observation_space.sample(), 0.5, False, False, {}


class StepCount(gymnasium.Env):
    """Observes and rewards the number of steps so far; never ends.

    Step ``at`` gives ``reward`` (a number, or its text: a spec has no NaN), or is
    followed by an observation that is NaN; ``ever``: so do all after it.
    """

    observation_space = spaces.Box(0, 1e6, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, at=0, reward=None, blind=False, ever=False):
        self.at, self.reward, self.blind, self.ever = at, reward, blind, ever

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.array([0.0]), {}

    def step(self, action):
        self.steps += 1
        observation, reward = float(self.steps), float(self.steps)
        if self.steps == self.at or (self.ever and self.steps > self.at):
            observation = np.nan if self.blind else observation
            reward = reward if self.reward is None else float(self.reward)
        return np.array([observation]), reward, False, False, {}


class Picture(gymnasium.Env):
    """A picture with a pixel of 255 and one of 0, of a shape that says its layout."""

    action_space = spaces.Discrete(2)

    def __init__(self, shape=(3, 64, 64)):
        self.observation_space = spaces.Box(0, 255, tuple(shape), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        return self._observe(), 1.0, False, False, {}

    def _observe(self):
        shape = self.observation_space.shape
        picture = self.np_random.integers(0, 256, shape, np.uint8)
        picture.flat[:2] = 0, 255
        return picture


class Sunset(gymnasium.Env):
    """A smooth picture that has gone a column further with each step; never ends."""

    observation_space = spaces.Box(0, 255, (48, 64, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.picture(0), {}

    def step(self, action):
        self.steps += 1
        return self.picture(self.steps), 1.0, False, False, {}

    @staticmethod
    def picture(steps):
        rows = np.arange(48)[:, None, None]
        columns = (np.arange(64)[None, :, None] + steps) % 64
        light = 127 * (1 + np.sin(2 * np.pi * columns / 64 + np.arange(3)))
        return (light * rows / 48).astype(np.uint8)


class NotSupported(gymnasium.Env):
    """Has a field that no record can carry."""

    observation_space = spaces.Dict(
        {"head": spaces.Box(0, 1), "deep": spaces.Dict({"tail": spaces.Text(5)})}
    )
    action_space = spaces.Discrete(2)


WRAPPERS = {"Halved": lambda env: gymnasium.wrappers.TransformReward(env, _halve)}


def _halve(reward):
    return reward / 2


for _name, _entry, _vector in [
    ("E3", E3, E3Vector),
    ("E3SameStep", None, E3SameStep),
    ("E3Lying", None, E3Lying),
    ("E3LyingWithInfos", None, E3LyingWithInfos),
    ("E3Disabled", None, E3Disabled),
    ("E3Undeclared", None, E3Undeclared),
    ("StepCount", StepCount, None),
    ("Picture", Picture, None),
    ("Sunset", Sunset, None),
    ("Misbehaving", Misbehaving, None),
    ("NanEnds", NanEnds, None),
    ("OddRewards", OddRewards, None),
    ("Nested", Nested, None),
    ("NotSupported", NotSupported, None),
]:
    if f"{_name}-v0" not in gymnasium.registry:
        gymnasium.register(
            f"{_name}-v0", entry_point=_entry, vector_entry_point=_vector
        )
if "SelfResetting-v0" not in gymnasium.registry:
    gymnasium.register(
        "SelfResetting-v0",
        entry_point=E3,
        additional_wrappers=(gymnasium.wrappers.Autoreset.wrapper_spec(),),
    )
