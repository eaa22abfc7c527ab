"""What commands and the Client know of this machine: its cluster, its modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import psutil

from infra.cluster.local import find_endpoints
from infra.errors import RollstreamError
from infra.settings import Settings, load_settings
from schemas.experiment import Experiment, check_algorithm
from schemas.fit import check_fit


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


def check_environment(settings: Settings, experiment: Experiment) -> None:
    """Raise SpecError when the experiment cannot run on a machine like this one."""
    # Here, not above: gymnasium takes a quarter of a second to import.
    from producers.validation import try_environment

    check_algorithm(experiment.spec, bool(settings.learner_modules))
    env = try_environment(experiment.spec.env, settings)
    check_fit(experiment.spec, env, psutil.virtual_memory().total)
