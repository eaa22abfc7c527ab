"""Frames that were recorded once -> a vector environment's steps, over and over.

Runs in peers' environments too: nothing but numpy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FRAMES_ENV = "bench/RecordedFrames-v0"
STEPS, ENVS = 320, 32
ARRAYS = ("frames", "rewards", "terminated")
SIDE = 84
FRAME_BYTES = SIDE * SIDE


class RecordedFrames:
    """B environments that show what was recorded, whatever is done in them.

    Attributes:
        num_envs: B.
    """

    def __init__(self, directory: str) -> None:
        """Read ``frames`` [N, B, 84, 84] uint8, ``rewards`` and ``terminated`` [N, B].

        Row t's reward and end are of the step that led to row t; the row behind an end
        is the next episode's first.
        """
        self._frames, self._rewards, self._terminated = (
            np.load(Path(directory) / f"{name}.npy") for name in ARRAYS
        )
        self.num_envs: int = self._frames.shape[1]
        self._at = 0
        self._never = np.zeros(self.num_envs, np.bool_)
        self._always = ~self._never

    def reset(self) -> Array:
        """Begin at the beginning; return frames [B, 84, 84]."""
        self._at = 0
        frames: Array = self._frames[0]
        return frames

    def step(self) -> tuple[Array, Array, Array, Array]:
        """Return the next frames, and rewards, terminated, truncated [B].

        What was recorded ends with a truncation, and begins again.
        """
        self._at = (self._at + 1) % len(self._frames)
        at = self._at
        is_last = at == len(self._frames) - 1
        terminated = self._terminated[at]
        truncated = ~terminated if is_last else self._never
        return self._frames[at], self._rewards[at], terminated, truncated
