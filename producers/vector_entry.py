"""A vector environment of its own kind, watched as a whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from producers.env_recipe import EnvRefused
from producers.guarded_env import MAX_REBUILDS, EnvFailed, Failure, Step
from producers.seeding import StreamSeeds
from producers.spaces import Fields, Structure
from producers.watchdog import StepTimeout, Watchdog
from schemas.tensors import Array

AnyVectorEnv = VectorEnv[Any, Any, Any]
_FIRST_DELAY_S = 0.1


class VectorEntryEnvironments:
    """B environments behind one vector entry point.

    When it raises or hangs, which of them it was cannot be told: the row of all of
    them is lost, it is made anew, and all begin new episodes.
    """

    vectorization = "vector_entry_point"

    def __init__(self, make: Callable[[], AnyVectorEnv], watchdog: Watchdog) -> None:
        self.restarts = 0
        self._make = make
        self._watchdog = watchdog
        self._seeds = StreamSeeds(0, 0, 0)
        self._failed_in_a_row = 0
        self._env = self._guard_start(self._made)
        self.num_envs = self._env.num_envs
        self.observation = Structure.of(self._env.single_observation_space)
        self.action = Structure.of(self._env.single_action_space)
        self._observations: Fields = {}
        self._lost = False
        self._plain = [field.name for field in self.observation.fields] == [""]

    def reset(self, seeds: StreamSeeds) -> Fields:
        """Begin new episodes everywhere."""
        self._seeds = seeds
        observations: Fields = self._guard_start(self._reset)
        return observations

    def step(self, actions: Fields) -> Step:
        """Step all, or begin anew after a failure."""
        try:
            if self._lost:
                return self._begin_anew()
            with self._watchdog.watching("vector environment"):
                value, rewards, terminated, truncated, infos = self._env.step(
                    self.action.unflatten(actions)
                )
        except EnvRefused:
            raise
        except (Exception, StepTimeout) as exc:
            return self._all_failed(exc)
        if infos and ("final_obs" in infos or "final_observation" in infos):
            raise _same_step("infos with final_obs")
        self._observations, numbers = self._flatten(value), self._numbers(rewards)
        if self._failed_in_a_row:
            # What ends with no number is no episode: it would fail for ever.
            if ((terminated | truncated) & np.isfinite(numbers)).any():
                self._failed_in_a_row = 0
        return Step(self._observations, numbers, terminated, truncated)

    def close(self) -> None:
        """Close it, whatever it raises."""
        try:
            with self._watchdog.watching("closing the vector environment"):
                self._env.close()
        except (Exception, StepTimeout):
            pass  # it was given up already, with its own reason

    def _made(self) -> AnyVectorEnv:
        env = self._make()
        mode = env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.NEXT_STEP:
            env.close()
            raise _same_step(f"metadata autoreset_mode {mode!r}")
        return env

    def _reset(self) -> Fields:
        seed = self._seeds.vector(self.restarts)
        # Nothing of ours samples the batched action space, but an environment might.
        self._env.action_space.seed(seed % 2**32)
        value, _ = self._env.reset(seed=seed)
        self._observations = self._flatten(value)
        return self._observations

    def _begin_anew(self) -> Step:
        with self._watchdog.watching("vector environment"):
            self._env = self._made()
            observations = self._reset()
        self._lost = False
        none = np.zeros(self.num_envs, np.bool_)
        return Step(observations, np.zeros(self.num_envs), none, none)

    def _all_failed(self, exc: BaseException) -> Step:
        self._note_failure(exc)
        self.close()
        self._lost = True
        failures = [Failure(i, "") for i in range(1, self.num_envs)]
        reason = f"vector environment, all {self.num_envs}: {exc!r}"
        everything = np.ones(self.num_envs, np.bool_)
        return Step(
            self._observations,
            np.zeros(self.num_envs),
            ~everything,
            everything,
            (Failure(0, reason), *failures),
        )

    def _note_failure(self, exc: BaseException) -> None:
        self._failed_in_a_row += 1
        if self._failed_in_a_row > MAX_REBUILDS:
            raise EnvFailed(
                f"vector environment: {exc!r}; it failed {MAX_REBUILDS + 1} times",
                "mend the environment",
            ) from exc
        self.restarts += 1
        if self._failed_in_a_row > 1:
            time.sleep(_FIRST_DELAY_S * 2.0 ** (self._failed_in_a_row - 2))

    def _guard_start(self, start: Callable[[], Any]) -> Any:
        while True:
            try:
                with self._watchdog.watching("starting the vector environment"):
                    return start()
            except EnvRefused:
                raise
            except (Exception, StepTimeout) as exc:
                self._note_failure(exc)

    def _flatten(self, value: Any) -> Fields:
        if self._plain:
            return {"": value}
        return self.observation.flatten(value)

    def _numbers(self, rewards: Any) -> Array:
        array = np.asarray(rewards)
        if array.shape == (self.num_envs, 1):
            array = array[:, 0]
        if array.shape != (self.num_envs,) or array.dtype.kind not in "biuf":
            raise EnvFailed(
                f"rewards: expected {self.num_envs} numbers, found {array.dtype}"
                f"{list(array.shape)}"
            )
        if array.dtype.char in "fd":
            return array
        return array.astype(np.float64)


def _same_step(found: str) -> EnvRefused:
    return EnvRefused(
        "vector environment: expected autoreset mode NEXT_STEP, where the row after an "
        f"episode's end is the reset, found {found}",
        "use vectorization sync or async, or make it with NEXT_STEP",
    )
