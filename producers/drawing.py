"""One environment of an experiment, made so that a person can see what it does."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium
import numpy as np

from infra.errors import RollstreamError
from infra.settings import Settings
from producers.env_recipe import EnvRecipe, SingleEnv
from schemas.experiment import EnvSpec
from schemas.tensors import Array

Mode = Literal["none", "human", "rgb_array"]
"""human: the environment opens a window; rgb_array: frames are taken from it."""

DEFAULT_FPS = 30.0


class CannotDraw(RollstreamError):
    """The environment does not show what it does, or not on this machine."""


@dataclass
class Screen:
    """What one environment shows, row by row.

    Attributes:
        mode: how.
        ended: episodes that have ended.
    """

    mode: Mode = "none"
    ended: int = 0
    _frames: list[Array] = field(default_factory=list)

    def see(self, env: SingleEnv, *, is_over: bool) -> None:
        """Note a row, a reset's too; raises what drawing raises."""
        if self.mode == "rgb_array":
            self._frames.append(draw(env))
        self.ended += is_over

    def take(self) -> list[Array]:
        """Return the frames since the last time, uint8 [H, W, 3] each."""
        frames, self._frames = self._frames, []
        return frames


@dataclass(frozen=True)
class SeenRecipe(EnvRecipe):
    """How to make one environment whose rows a screen is told of."""

    screen: Screen = field(default_factory=Screen)

    @classmethod
    def on(cls, spec: EnvSpec, settings: Settings, screen: Screen) -> SeenRecipe:
        """Return the recipe of an experiment's environment on this machine."""
        if screen.mode != "none":
            kwargs = {**spec.kwargs, "render_mode": screen.mode}
            spec = spec.model_copy(update={"kwargs": kwargs})
        return cls(spec, settings.env_modules, screen)

    def make(self) -> SingleEnv:
        """Make it; raises as EnvRecipe does."""
        with warnings.catch_warnings():
            # A mode that it does not have is found out by drawing.
            warnings.simplefilter("ignore")
            return _Seen(super().make(), self.screen)


class _Seen(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: SingleEnv, screen: Screen) -> None:
        super().__init__(env)
        self._screen = screen

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        found = super().reset(**kwargs)
        self._screen.see(self.env, is_over=False)
        return found

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        found = super().step(action)
        self._screen.see(self.env, is_over=bool(found[2]) or bool(found[3]))
        return found


def frames_per_second(recipe: SeenRecipe) -> float:
    """Try to draw; return how many frames make a second, 30 where nobody says.

    Raises:
        CannotDraw: it has no such mode, or what it draws with is missing here.
        EnvRefused: it cannot be made.
    """
    mode, env_id = recipe.screen.mode, recipe.spec.id
    if mode == "rgb_array" and not has_display():
        # Else Pygame and MuJoCo look for a display before they draw anything.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("MUJOCO_GL", "egl")
    if recipe.registered().entry_point is None:
        raise CannotDraw(
            f"{env_id}: expected an environment that can be made alone, found only a "
            "vector entry point, of which nothing is drawn",
            "play without --record",
        )
    try:
        env = SeenRecipe(recipe.spec, recipe.modules, Screen(mode)).make()
    except RollstreamError:
        raise
    except Exception as exc:  # its constructor may raise anything
        raise _cannot_draw(env_id, mode, exc) from exc
    try:
        modes = env.metadata.get("render_modes", [])
        if mode not in modes:
            raise CannotDraw(
                f"{env_id}: expected the render mode {mode}, found {list(modes)}",
                "play without --record, or add the mode to the environment",
            )
        env.reset(seed=0)
        return float(env.metadata.get("render_fps") or DEFAULT_FPS)
    except RollstreamError:
        raise
    except Exception as exc:
        raise _cannot_draw(env_id, mode, exc) from exc
    finally:
        env.close()


def draw(env: SingleEnv) -> Array:
    """Return a frame, uint8 [H, W, 3].

    Raises:
        CannotDraw: what it renders is none.
    """
    frame = np.asarray(env.render())
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        raise CannotDraw(
            f"{env}: expected uint8 [H, W, 3] of render(), found "
            f"{frame.dtype}{list(frame.shape)}",
            "play without --record",
        )
    return frame


def has_display(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a window can be opened here."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _cannot_draw(env_id: str, mode: str, exc: Exception) -> CannotDraw:
    return CannotDraw(
        f"{env_id}: expected an environment that renders as {mode} here, found {exc}",
        "install what it draws with (`pip install 'rollstream[video]'` for Gymnasium's "
        "classic ones; MUJOCO_GL=egl or osmesa for MuJoCo), or play without "
        "--record",
    )
