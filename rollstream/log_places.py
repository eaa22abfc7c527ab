"""Where the logs of an experiment's newest run are: here, and on which other hosts."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from infra.control.experiments import (
    UnknownExperiment,
    read_experiment,
    run_directory,
)
from infra.errors import RollstreamError
from infra.log_files import find_logs
from infra.monitoring.whereabouts import role_hosts
from infra.settings import Settings
from rollstream.machine import running

Role = tuple[str, int]


@dataclass(frozen=True)
class Places:
    """Where a run's logs are.

    Attributes:
        directory: of those on this machine.
        hosts: of each role, by its newest Member or status.
        problem: why nothing is known of hosts; "" when it is.
    """

    directory: Path
    hosts: dict[Role, str] = field(default_factory=dict)
    problem: str = ""

    def notes(self, wanted: Callable[[Role], bool]) -> list[str]:
        """Return what to tell of logs that are asked for and not, or not all, here."""
        if self.problem:
            return [f"only this host's logs: {self.problem}"]
        here, found = platform.node(), []
        path = Path("experiments", *self.directory.parts[-3:])
        for who, host in self.hosts.items():
            role, index = who
            if wanted(who) and host != here:
                found.append(
                    f"{role}/{index}: its log is on host {host}: "
                    f"$ROLLSTREAM_DATA_DIR/{path}/{role}-{index}.log"
                )
        return found


def find_places(settings: Settings, experiment: str) -> Places:
    """Find the newest run: by the topics, or without a cluster by what is here.

    Raises:
        UnknownExperiment: there is none of that name, nor logs of one.
        RollstreamError: there is neither cluster nor log.
    """
    here = newest_logs(settings, experiment)
    try:
        at = running(settings)
        run_id = read_experiment(at, experiment).run_id
        hosts = role_hosts(at, experiment, run_id)
    except RollstreamError as exc:
        if not here.is_dir():
            raise
        deleted = isinstance(exc, UnknownExperiment)
        return Places(here, {}, "it is deleted" if deleted else exc.problem)
    return Places(run_directory(settings, experiment, run_id) / "logs", hosts)


def newest_logs(settings: Settings, experiment: str) -> Path:
    """Return the directory of the logs of the newest run that has some here."""
    runs = run_directory(settings, experiment, "-").parent
    found = [path for path in runs.glob("*/logs") if find_logs(path)]
    return max(found, default=runs / "-" / "logs")
