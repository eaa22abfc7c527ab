"""An experiment's environment -> B of them, and their description for the learner."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import gymnasium
import numpy as np

from infra.settings import Settings
from producers.env_recipe import EnvRecipe, EnvUnknown
from producers.env_slots import InProcess, OwnProcess, Slot
from producers.guarded_env import Environments, SlotEnvironments
from producers.vector_entry import AnyVectorEnv, VectorEntryEnvironments
from producers.watchdog import Watchdog
from schemas.experiment import EnvSpec
from schemas.records import EnvDescription


def make_environments(
    spec: EnvSpec, num_envs: int, settings: Settings, watchdog: Watchdog
) -> Environments:
    """Make B environments, every one guarded.

    ``auto`` means the environment's own vector entry point when it has one and there
    are no wrappers, else sync.

    Raises:
        EnvRefused: it cannot be used as the experiment says; if that is certain,
            EnvUnknown.
        EnvFailed: it does not start.
    """
    recipe = EnvRecipe.of(spec, settings)
    registered = recipe.registered()
    mode = _resolve(spec, registered)
    if mode == "vector_entry_point":
        return VectorEntryEnvironments(lambda: _make_vec(spec, num_envs), watchdog)
    if registered.entry_point is None:
        raise EnvUnknown(
            f"spec.env.vectorization: expected vector_entry_point for {spec.id}, which "
            f"has no other, found {mode}"
        )
    slots: list[Slot]
    if mode == "sync":
        slots = [InProcess(recipe, i, watchdog) for i in range(num_envs)]
    else:
        timeout_s = spec.step_timeout_s
        slots = [OwnProcess(recipe, i, timeout_s) for i in range(num_envs)]
    return SlotEnvironments(slots, mode)


def _resolve(spec: EnvSpec, registered: Any) -> str:
    has_own = registered.vector_entry_point is not None
    wrapped = bool(spec.wrappers or registered.additional_wrappers)
    if spec.vectorization == "vector_entry_point" and (wrapped or not has_own):
        raise EnvUnknown(
            f"spec.env.vectorization: expected sync or async for {spec.id}, which has "
            f"{'wrappers' if wrapped else 'no vector entry point'}, found "
            "vector_entry_point"
        )
    if spec.vectorization != "auto":
        return spec.vectorization
    return "vector_entry_point" if has_own and not wrapped else "sync"


def _make_vec(spec: EnvSpec, num_envs: int) -> AnyVectorEnv:
    kwargs: dict[str, Any] = dict(spec.kwargs)
    return gymnasium.make_vec(
        spec.id, num_envs, vectorization_mode="vector_entry_point", **kwargs
    )


def describe_environments(
    spec: EnvSpec, environments: Environments, settings: Settings
) -> EnvDescription:
    """Return what a learner must know of the environments."""
    registered = EnvRecipe.of(spec, settings).registered()
    limit = spec.kwargs.get("max_episode_steps", registered.max_episode_steps)
    for wrapper in spec.wrappers:
        if wrapper.name == "TimeLimit":
            limit = wrapper.kwargs.get("max_episode_steps", limit)
    return EnvDescription(
        env_id=spec.id,
        observation=environments.observation.fields,
        action=environments.action.fields,
        max_episode_steps=limit if isinstance(limit, int) else None,
        vectorization=environments.vectorization,
        versions=_versions(registered),
    )


def _versions(registered: Any) -> dict[str, str]:
    versions = {"gymnasium": gymnasium.__version__, "numpy": np.__version__}
    entry = registered.entry_point or registered.vector_entry_point
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    package = module.partition(":")[0].partition(".")[0]
    try:
        versions[package] = importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        pass  # not a distribution: a module of the machine's own
    return versions
