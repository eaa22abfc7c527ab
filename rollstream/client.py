"""Experiments from Python: what the commands do, typed."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from infra.control.coordination import CONNECT_S, Coordination
from infra.control.deletion import (
    Belongings,
    Report,
    delete_experiment,
    wait_until_gone,
)
from infra.control.desired import PublishedExperiment
from infra.control.edits import Count, in_state, scaled
from infra.control.experiments import read_experiment
from infra.control.launching import (
    Launched,
    change,
    launch,
    refuse_claimed,
)
from infra.control.statuses import read_states
from infra.control.watching import Moment, watch
from infra.errors import RollstreamError
from infra.monitoring.live import is_claimed, live_agents
from infra.monitoring.overview import ExperimentRow, read_overview
from infra.monitoring.status import ExperimentStatus, read_status
from infra.settings import Settings
from rollstream.machine import check_environment, running
from rollstream.overrides import apply_overrides
from rollstream.spec_file import read_values
from schemas.experiment import Experiment, from_values

STOP_TIMEOUT_S = 60.0
_LOOK_S = 10.0

Source = Experiment | Mapping[str, Any] | Path | str


class Client:
    """Launches experiments, watches them and changes them, on a cluster that runs.

    Example::

        from rollstream import Client

        with Client() as client:
            client.launch(
                "infra/experiments/cartpole-dqn.yaml",
                overrides=["spec.workers.replicas=4"],
            )
            for moment in client.watch("cartpole-dqn"):
                print(moment.state, moment.tick.progress.env_steps)
            print(moment.summary)

    Every method raises `infra.errors.RollstreamError`, whose ``mend`` says what to do,
    and `schemas.experiment.SpecError` for a spec that is refused.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        """Find the cluster: of the settings, the environment, or `rollstream up`."""
        self.settings = running(settings)
        self._coordination: Coordination | None = None

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Disconnect from ZooKeeper; what was launched goes on."""
        if self._coordination is not None:
            self._coordination.close()
            self._coordination = None

    def launch(
        self, what: Source, overrides: Sequence[str] = (), fresh: bool = False
    ) -> Launched:
        """Hand an experiment to the agents; the same spec again changes nothing.

        Args:
            what: the experiment, its values, or the path of its file.
            overrides: ``path=value``, as of ``--set``.
            fresh: start over under a new run id.
        """
        experiment = load(what, overrides)
        self.check(experiment)
        return launch(self.settings, self._zookeeper(), experiment, fresh)

    def check(self, *experiments: Experiment) -> None:
        """Raise SpecError when one could not run on a machine like this one."""
        for experiment in experiments:
            check_environment(self.settings, experiment)

    def get(self, name: str) -> PublishedExperiment:
        """Return the spec in force."""
        return read_experiment(self.settings, name)

    def list(self) -> tuple[ExperimentRow, ...]:
        """Return all experiments, by name."""
        return read_overview(self.settings).experiments

    def watch(self, name: str) -> Generator[Moment]:
        """Yield several times a second until it is finished, stopped or deleted.

        One of `rollstream run` is over when that has ended, however it did.
        """
        return watch(self.settings, name, lambda: self._is_claimed(name))

    def status(self, name: str) -> ExperimentStatus:
        """Return all that its topics say of it."""
        return read_status(self.settings, name)

    def pause(self, name: str) -> Launched:
        """Make workers end their streams and wait; no process ends."""
        return change(self.settings, name, lambda spec: in_state(spec, "paused"))

    def resume(self, name: str) -> Launched:
        """Let an experiment that was paused or stopped go on.

        One that is degraded is tried again: its roles that were given up are started.
        """
        state = read_states(self.settings, name).get(name)
        is_degraded = state is not None and state.state == "degraded"
        return change(
            self.settings,
            name,
            lambda spec: in_state(spec, "running"),
            again=is_degraded,
        )

    def scale(self, name: str, **counts: Count) -> Launched:
        """Change how many processes there are: ``workers``, ``processor``.

        A pair is the bounds (min, max) within which the number follows the load.
        """
        return change(self.settings, name, lambda spec: scaled(spec, counts))

    def stop(
        self,
        name: str,
        timeout_s: float = STOP_TIMEOUT_S,
        report: Report = lambda line: None,
    ) -> Launched:
        """Stop its roles, and wait until they are gone; ``resume`` goes on.

        ``report`` is told who is waited for.
        """
        coordination = self._zookeeper()
        refuse_claimed(coordination, name)
        done = change(self.settings, name, lambda spec: in_state(spec, "stopped"))
        wait_until_gone(coordination, name, report=report, timeout_s=timeout_s)
        return done

    def delete(
        self,
        name: str,
        timeout_s: float = STOP_TIMEOUT_S,
        report: Report = lambda line: None,
    ) -> Belongings:
        """Stop it, and delete its topics, groups, statuses and spec; return which.

        ``report`` is told of each step.
        """
        return delete_experiment(
            self.settings,
            self._zookeeper(),
            name,
            report=report,
            timeout_s=timeout_s,
        )

    def agents(self) -> tuple[str, ...]:
        """Return the agents that live."""
        return live_agents(self._zookeeper())

    def _is_claimed(self, name: str) -> bool | None:
        with suppress(RollstreamError):
            # Who watches waits for it meanwhile.
            return is_claimed(self._zookeeper(_LOOK_S), name)
        return None

    def _zookeeper(self, timeout_s: float = CONNECT_S) -> Coordination:
        if self._coordination is None:
            coordination = Coordination(self.settings)
            coordination.start(timeout_s)
            self._coordination = coordination
        return self._coordination


def load(what: Source, overrides: Sequence[str] = ()) -> Experiment:
    """Return an experiment, of a file or values, with some values set."""
    if isinstance(what, Experiment):
        values: dict[str, Any] = what.model_dump(mode="json", by_alias=True)
    elif isinstance(what, Mapping):
        values = dict(what)
    else:
        values = read_values(Path(what))
    return from_values(apply_overrides(values, overrides))
