"""One environment, stepped and reset: actions -> rows, in NEXT_STEP mode."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from producers.env_recipe import EnvRecipe, EnvRefused
from producers.seeding import StreamSeeds


class Row(NamedTuple):
    """What one step gave; the observation is as the environment returned it."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool


class EpisodeRunner:
    """Runs the episodes of one environment.

    The call after an episode's end resets: its action is ignored, its reward is 0.
    Every episode is reset with a seed of its own, so it can be played again alone.
    """

    def __init__(self, recipe: EnvRecipe, index: int) -> None:
        self.env = recipe.make()
        self._index = index
        self._seeds: StreamSeeds | None = None
        self._episode = 0
        self._over = True
        self._stepping = False
        self._watch_resets()

    def start(self, seeds: StreamSeeds, episode: int = 0) -> None:
        """Begin with an episode's reset at the next call of ``advance``."""
        self._seeds, self._episode, self._over = seeds, episode, True

    def advance(self, action: Any) -> Row:
        """Step, or reset after the end of an episode; raises what they raise."""
        if self._over:
            return self._reset()
        self._stepping = True
        observation, reward, terminated, truncated, _ = self.env.step(action)
        self._stepping = False
        row = Row(observation, scalar(reward), bool(terminated), bool(truncated))
        self._over = row.terminated or row.truncated
        return row

    def close(self) -> None:
        """Close the environment and its renderer."""
        self._stepping = False
        self.env.close()

    def _reset(self) -> Row:
        assert self._seeds is not None, "start() comes first"
        seed = self._seeds.episode(self._index, self._episode)
        self._episode += 1
        self._stepping = False
        observation, _ = self.env.reset(seed=seed)
        self._over = False
        return Row(observation, 0.0, False, False)

    def _watch_resets(self) -> None:
        inner: Any = self.env.unwrapped
        reset = inner.reset

        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._stepping:
                raise EnvRefused(
                    f"{inner}: expected resets to be left to us, found reset() called "
                    "within step(): the final observation is lost",
                    "let step() return terminated or truncated, and stop there",
                )
            return reset(*args, **kwargs)

        try:
            inner.reset = watched
        except AttributeError:  # slots or a native class: it cannot be watched
            pass


def scalar(reward: Any) -> float:
    """Return a reward of any number type, 0-d or of one element, as a float.

    Raises:
        ValueError: it is not one number.
    """
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"reward: expected one number, found {array.dtype}{list(array.shape)}"
        )
    return float(array.reshape(())[()])
