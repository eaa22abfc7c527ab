"""An experiment's environment, tried here -> its description, or why it is refused."""

from __future__ import annotations

from infra.settings import Settings
from producers.env_recipe import EnvRecipe
from producers.environments import describe_environments, make_environments
from producers.watchdog import Watchdog
from schemas.experiment import EnvSpec
from schemas.records import EnvDescription


def goal_of(spec: EnvSpec, settings: Settings) -> float | None:
    """Return the mean return at which an environment counts as solved; None: unknown.

    Raises:
        EnvRefused: it is not registered.
    """
    goal = EnvRecipe.of(spec, settings).registered().reward_threshold
    return None if goal is None else float(goal)


def try_environment(spec: EnvSpec, settings: Settings) -> EnvDescription:
    """Make one environment, and return what a worker would say of it.

    Call from the main thread: a constructor that hangs is interrupted by a signal.

    Raises:
        EnvRefused, SpaceRefused: with the path to what cannot be used.
        EnvFailed: it does not start.
    """
    watchdog = Watchdog(spec.step_timeout_s)
    try:
        environments = make_environments(spec, 1, settings, watchdog)
        try:
            return describe_environments(spec, environments, settings)
        finally:
            environments.close()
    finally:
        watchdog.close()
