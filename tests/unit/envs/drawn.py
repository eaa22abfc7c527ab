"""An environment that draws what it shows, well or badly."""

import gymnasium
import numpy as np
from gymnasium import spaces

WIDTH, HEIGHT = 21, 17  # odd, as no video is


class Drawn(gymnasium.Env):
    """Each step rewards the action; the fourth ends an episode. Frames grow brighter.

    ``drawing``: ``well``; ``not at all``: it raises; ``badly``: no colours.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, render_mode=None, drawing="well", crashes_at=0):
        self.render_mode = render_mode
        self.drawing = drawing
        self.crashes_at = crashes_at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        if self.steps == self.crashes_at:
            raise RuntimeError("crashed on purpose")
        return self._observe(), float(action), self.steps == 4, False, {}

    def render(self):
        if self.drawing == "not at all":
            raise ImportError("paint is not installed")
        shape = (HEIGHT, WIDTH) if self.drawing == "badly" else (HEIGHT, WIDTH, 3)
        return np.full(shape, 50 * self.steps, np.uint8)

    def _observe(self):
        return self.np_random.normal(size=2).astype(np.float32)


if "Drawn-v0" not in gymnasium.registry:
    gymnasium.register("Drawn-v0", entry_point=Drawn)
