"""``bench/RecordedFrames-v0``: frames of Atari games, as fast as they can be read."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import AtariPreprocessing

from benchmarks.beside.scripts.recorded_frames import (
    ARRAYS,
    ENVS,
    FRAMES_ENV,
    SIDE,
    STEPS,
    RecordedFrames,
)
from schemas.tensors import Array

GAMES = ("Pong", "Breakout", "Seaquest")
_NUM_ACTIONS = 18


class VectorRecordedFrames(VectorEnv[Any, Any, Any]):
    """RecordedFrames for Gymnasium."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}

    def __init__(self, num_envs: int = ENVS, *, directory: str) -> None:
        """Read what ``record_frames`` wrote.

        Raises:
            ValueError: that is of another number of environments.
        """
        self._recorded = RecordedFrames(directory)
        if self._recorded.num_envs != num_envs:
            raise ValueError(
                f"expected {self._recorded.num_envs} environments, found {num_envs}"
            )
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
        self.single_action_space = spaces.Discrete(_NUM_ACTIONS)
        batched = gymnasium.vector.utils.batch_space
        self.observation_space = batched(self.single_observation_space, num_envs)
        self.action_space = batched(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin again."""
        super().reset(seed=seed)
        return self._recorded.reset(), {}

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Show what comes next, whatever the actions."""
        return (*self._recorded.step(), {})


gymnasium.register(
    FRAMES_ENV,
    "benchmarks.frames_env:no_single_environment",
    vector_entry_point="benchmarks.frames_env:VectorRecordedFrames",
)


def no_single_environment(**kwargs: Any) -> Any:
    """Raise ValueError: a recording is of several."""
    raise ValueError("expected vectorization vector_entry_point or auto, found another")


def recorded_frames(cache_dir: Path) -> Path:
    """Return the directory of the recording; it is made at first use, in half a minute.

    Random play of three games, 84 x 84 grey frames as learners get them, no stacking.
    """
    directory = cache_dir / f"atari-frames-{STEPS}x{ENVS}"
    if directory.exists():
        return directory
    cache_dir.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=cache_dir, prefix=".atari-frames-"))
    try:
        for name, array in zip(ARRAYS, _play(), strict=True):
            np.save(unfinished / f"{name}.npy", array)
        os.replace(unfinished, directory)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return directory


def _play() -> tuple[Array, Array, Array]:
    """Return frames [N, B, 84, 84], rewards and terminated [N, B] of random play."""
    import ale_py

    gymnasium.register_envs(ale_py)
    frames = np.zeros((STEPS, ENVS, SIDE, SIDE), np.uint8)
    rewards = np.zeros((STEPS, ENVS), np.float64)
    terminated = np.zeros((STEPS, ENVS), np.bool_)
    for env in range(ENVS):
        game = GAMES[env % len(GAMES)]
        made = AtariPreprocessing(gymnasium.make(f"ALE/{game}-v5", frameskip=1))
        rng = np.random.default_rng(env)
        frames[0, env], _ = made.reset(seed=env)
        for at in range(1, STEPS):
            if terminated[at - 1, env]:
                frames[at, env], _ = made.reset()
                continue
            action = rng.integers(made.action_space.n)  # type: ignore[attr-defined]
            frame, reward, terminated[at, env], _, _ = made.step(action)
            frames[at, env], rewards[at, env] = frame, float(reward)
        made.close()
    return frames, rewards, terminated
