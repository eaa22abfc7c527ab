"""What commands and the Client know of this machine: its cluster, its modules."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

import psutil

from infra.cluster.local import find_endpoints
from infra.errors import RollstreamError, SettingsError
from infra.log_lines import LEVELS
from infra.logs import LOG_LEVEL
from infra.settings import Settings, load_settings
from rollstream.run_from import check_past
from schemas.experiment import EnvSpec, Experiment, SpecError, check_algorithm
from schemas.fit import check_fit
from schemas.image_codecs import missing_codecs
from schemas.records import EnvDescription


def running(settings: Settings | None = None) -> Settings:
    """Return settings of a cluster that runs; raises RollstreamError without one."""
    settings = settings or load_settings()
    found = find_endpoints(settings)
    if found is None:
        raise RollstreamError(
            "expected a running cluster, found none",
            "`rollstream up` starts one; KAFKA_BOOTSTRAP_SERVERS names another",
        )
    return settings.at(found.bootstrap_servers, found.zookeeper)


def with_modules(settings: Settings, modules: Sequence[str] | None) -> Settings:
    """Return settings with more modules of environments, importable from here."""
    names = (*settings.env_modules, *(modules or ()))
    if names and os.getcwd() not in sys.path:
        # As for the role processes, which are started with `python -m`.
        sys.path.insert(0, os.getcwd())
    return settings.model_copy(update={"env_modules": names})


def check_log_level() -> None:
    """Raise SettingsError when this machine's level of logs is none."""
    found = os.environ.get(LOG_LEVEL)
    if found and found.upper() not in logging.getLevelNamesMapping():
        raise SettingsError(
            f"{LOG_LEVEL}: expected {', '.join(LEVELS).lower()}, found {found!r}",
            "correct or unset the variable",
        )


def check_environment(settings: Settings, experiment: Experiment) -> None:
    """Check that an experiment can run on a machine like this one.

    Raises:
        SpecError: it is refused here.
        EnvFailed: its environment does not start.
    """
    check_algorithm(experiment.spec, bool(settings.learner_modules))
    check_past(experiment)
    env = try_here(experiment.spec.env, settings)
    if problem := missing_codecs(experiment.spec.workers.encoding.lossy):
        raise SpecError([problem])
    check_fit(experiment.spec, env, psutil.virtual_memory().total)


def try_here(spec: EnvSpec, settings: Settings) -> EnvDescription:
    """Make an environment on this machine, and return what it is.

    Raises:
        SpecError: it is not registered, or cannot be used as the spec says.
        EnvFailed: it does not start.
    """
    # Here, not above: gymnasium takes a quarter of a second to import.
    from producers.env_recipe import EnvRefused
    from producers.spaces import SpaceRefused
    from producers.validation import try_environment

    try:
        return try_environment(spec, settings)
    except (EnvRefused, SpaceRefused) as exc:
        raise SpecError([str(exc)]) from exc
