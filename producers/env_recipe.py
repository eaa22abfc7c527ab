"""What an experiment says of its environment -> one environment, made safely.

Ids come from Gymnasium's registry, wrappers from a list; modules to import are named
by the machine's settings. Nothing that a topic says is imported or called by name.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium import wrappers as gym_wrappers

from infra.errors import Hopeless, RollstreamError
from infra.settings import Settings
from producers import sample_envs as sample_envs  # registers them
from schemas.experiment import EnvSpec, Wrapper

SingleEnv = gymnasium.Env[Any, Any]
MakeWrapper = Callable[..., SingleEnv]

# Those that take plain values, and neither reset by themselves nor write files.
ALLOWED_WRAPPERS = frozenset(
    {
        "AtariPreprocessing",
        "ClipAction",
        "ClipReward",
        "DelayObservation",
        "DiscretizeAction",
        "DiscretizeObservation",
        "DtypeObservation",
        "FilterObservation",
        "FlattenObservation",
        "GrayscaleObservation",
        "MaxAndSkipObservation",
        "NormalizeObservation",
        "NormalizeReward",
        "RepeatAction",
        "RescaleAction",
        "RescaleObservation",
        "ReshapeObservation",
        "ResizeObservation",
        "StickyAction",
        "TimeAwareObservation",
        "TimeLimit",
    }
)
_RESERVED = {"id", "num_envs", "vector_kwargs", "vectorization_mode", "wrappers"}


class EnvRefused(RollstreamError):
    """An environment that cannot be used; trying again does not help."""


class EnvUnknown(EnvRefused, Hopeless):
    """An environment that this machine does not have, or cannot make as it is asked."""


@dataclass(frozen=True)
class EnvRecipe:
    """How to make one environment; can be sent to another process.

    Attributes:
        spec: what the experiment says.
        modules: what the machine imports first; a module's ``WRAPPERS``, a mapping of
            names to callables, adds to the allowed wrappers.
    """

    spec: EnvSpec
    modules: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: EnvSpec, settings: Settings) -> EnvRecipe:
        """Return the recipe of an experiment's environment on this machine."""
        return cls(spec, settings.env_modules)

    def registered(self) -> Any:
        """Import the modules and return Gymnasium's spec of the environment.

        Raises:
            EnvUnknown: a module cannot be imported, or the id is not registered.
            EnvRefused: a module fails otherwise.
        """
        import_modules(self.modules)
        env_id = self.spec.id
        found = gymnasium.registry.get(env_id)
        if ":" in env_id or found is None:
            near = difflib.get_close_matches(env_id, gymnasium.registry, 3)
            raise EnvUnknown(
                f"spec.env.id: expected a registered environment, found {env_id!r}"
                + (f" (did you mean {', '.join(near)}?)" if near else ""),
                "name the module that registers it in ROLLSTREAM_ENV_MODULES",
            )
        reserved = sorted(_RESERVED & self.spec.kwargs.keys())
        if reserved:
            raise EnvUnknown(
                "spec.env.kwargs: expected arguments of the environment, found "
                f"{reserved}",
                "say envsPerWorker, vectorization or wrappers instead",
            )
        return found

    def make(self) -> SingleEnv:
        """Make one environment with its wrappers.

        Raises:
            EnvRefused: it resets itself, or a wrapper is not allowed.
        """
        self.registered()
        kwargs: dict[str, Any] = dict(self.spec.kwargs)
        env: SingleEnv = gymnasium.make(
            self.spec.id, disable_env_checker=True, **kwargs
        )
        for wrapper in self.spec.wrappers:
            make, kwargs = self._wrapper(wrapper)
            env = make(env, **kwargs)
        _refuse_autoreset(env)
        return env

    def _wrapper(self, wrapper: Wrapper) -> tuple[MakeWrapper, dict[str, Any]]:
        known = {name: getattr(gym_wrappers, name) for name in ALLOWED_WRAPPERS}
        for module in import_modules(self.modules):
            known.update(getattr(module, "WRAPPERS", {}))
        if wrapper.name not in known:
            near = difflib.get_close_matches(wrapper.name, known, 3, 0.4)
            raise EnvUnknown(
                "spec.env.wrappers: expected an allowed wrapper, found "
                f"{wrapper.name!r}"
                + (f" (did you mean {', '.join(near)}?)" if near else ""),
                "add it to WRAPPERS of a module in ROLLSTREAM_ENV_MODULES",
            )
        # A spec has lists only; a shape, for one, has to be a tuple.
        kwargs = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in wrapper.kwargs.items()
        }
        return known[wrapper.name], kwargs


def import_modules(names: tuple[str, ...]) -> list[Any]:
    """Import the modules that the machine's settings name.

    Raises:
        EnvUnknown: one cannot be imported.
        EnvRefused: one fails otherwise.
    """
    return [_import_module(name) for name in names]


def _import_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as exc:  # whatever a module's top level raises
        if isinstance(exc, SystemExit) and type(exc) is not SystemExit:
            raise  # ours: somebody stops this process
        # A full disk or memory may be over the next time, a missing module is not.
        certain = isinstance(exc, ImportError | SyntaxError)
        raise (EnvUnknown if certain else EnvRefused)(
            f"ROLLSTREAM_ENV_MODULES: expected modules that import, found {name!r}, "
            f"which raises {exc!r}",
            "correct the variable, or install the module",
        ) from exc


def _refuse_autoreset(env: SingleEnv) -> None:
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gym_wrappers.Autoreset):
            raise EnvRefused(
                f"{env}: expected an environment that leaves resets to us, found "
                "gymnasium.wrappers.Autoreset: its final observation is lost",
                "register it without this wrapper",
            )
        layer = layer.env
