"""Settings -> a running Kafka and ZooKeeper, started, shared and stopped by pid.

The services outlive the process that starts them, so several can share them: each
holds a lease in state.json, and the last to release its own stops them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from infra.cluster import process
from infra.cluster.external import check_brokers, check_zookeeper
from infra.cluster.lifecycle import Lifecycle
from infra.cluster.service import LOOPBACK, Service
from infra.cluster.state import (
    ClusterState,
    User,
    new_state,
    read_state,
    recover_state,
    state_file,
    write_state,
)
from infra.errors import ClusterError
from infra.settings import Settings

# Another start or stop is under way: a first start on a slow machine at the most.
_LOCK_TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Endpoints:
    """Where the cluster answers."""

    bootstrap_servers: str
    zookeeper: str
    cluster_id: str
    data_dir: Path

    def environment(self) -> dict[str, str]:
        """Returns the variables that tell a child process."""
        return {
            "KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "ROLLSTREAM_ZOOKEEPER": self.zookeeper,
            "ROLLSTREAM_DATA_DIR": str(self.data_dir),
        }


def _ignore(_message: str) -> None:
    pass


class LocalCluster:
    """A lease on the cluster of this machine's data directory.

    A service that the settings name is used, and never started or stopped.

    Args:
        settings: where it lives, and what is elsewhere.
        report: is told what is going on.
        broker_config: settings of a broker that is started here, over our own.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        report: Callable[[str], None] = _ignore,
        broker_config: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._report = report
        self._dir = cluster_dir(settings)
        self._services = Lifecycle(settings, self._dir, report, broker_config)
        self._lease: User | None = None

    def start(self, keep: bool = False) -> Endpoints:
        """Adopts what runs, starts what does not, and waits until both answer.

        With `keep` they stay when the last user leaves, until `stop`.

        Raises:
            ClusterError: Names the service and what its log says.
            KafkaUnavailable: The configured brokers do not answer.
        """
        external_id = check_brokers(self._settings)
        check_zookeeper(self._settings)
        self._services.fetch_jars()
        with self._locked():
            state = self._services.prepare(self._load() or new_state(), keep)
            write_state(self._dir, state)
            state = self._services.ensure(state, self._take_lease)
        return _endpoints(self._settings, state, external_id)

    def release(self, timeout_s: float = 8.0) -> None:
        """Gives the lease back; stops what nobody else uses and `up` did not keep."""
        if self._lease is None:
            return
        with self._locked():
            state = read_state(self._dir)
            if state is not None:
                state = state.with_users(without=self._lease)
                if not state.kept and not state.users:
                    state = self._services.stop(state, timeout_s)
                write_state(self._dir, state)
            self._lease = None

    def stop(self, timeout_s: float = 8.0) -> None:
        """Stops the local Kafka, then ZooKeeper, whoever uses them."""
        self._lease = None
        if not self._dir.exists():
            return
        with self._locked():
            state = self._load()
            if state is not None:
                state = self._services.stop(state, timeout_s)
                state = state.model_copy(update={"kept": False, "users": ()})
                write_state(self._dir, state)

    def revive(self) -> list[str]:
        """Start again what of ours has died; return the names, [] when all runs.

        Raises:
            ClusterError: it does not start any more, or `rollstream down` stopped it.
        """
        running = self.pids()
        dead = [s.name for s in self._services.wanted() if s.name not in running]
        if dead:
            if self._lease not in self._existing_state().users:
                raise ClusterError(
                    f"{' and '.join(dead)}: stopped by `rollstream down` while in use",
                    "run again",
                )
            self._restart()
        return dead

    def kill_broker(self) -> int:
        """Kills the broker as a crash would (SIGKILL); returns its pid."""
        return self._kill(self._services.kafka)

    def kill_zookeeper(self) -> int:
        """Kills ZooKeeper as a crash would (SIGKILL); returns its pid."""
        return self._kill(self._services.zookeeper)

    def restart_broker(self) -> None:
        """Starts the broker again after it died, on its old port and data."""
        self._restart()

    def restart_zookeeper(self) -> None:
        """Starts ZooKeeper again after it died, on its old port and data."""
        self._restart()

    def pids(self) -> dict[str, int]:
        """Returns the pids of the local services that run, by name."""
        state = read_state(self._dir)
        if state is None:
            return {}
        services = (self._services.kafka, self._services.zookeeper)
        found = {
            service.name: self._services.pid(state, service) for service in services
        }
        return {name: pid for name, pid in found.items() if pid is not None}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            # Interrupted behind the start: nobody else would give the lease back.
            self.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._dir.mkdir(parents=True, exist_ok=True)
            # The topics may hold what is private; others have no business here.
            os.chmod(self._dir, 0o700)
        except OSError as exc:
            raise ClusterError(
                f"the data directory {self._dir} cannot be used: {exc.strerror}",
                "set ROLLSTREAM_DATA_DIR to a directory that you may write to",
            ) from exc
        with process.exclusive_lock(self._dir / "lock", _LOCK_TIMEOUT_S):
            yield

    def _load(self) -> ClusterState | None:
        """Reads the state, rebuilding it from the services' files if it is lost."""
        state, path = read_state(self._dir), state_file(self._dir)
        if state is not None:
            return state
        if path.exists():
            damaged = path.with_suffix(".damaged")
            path.replace(damaged)
            self._report(f"{path} was damaged and is rebuilt; the old is {damaged}")
        self._services.end_orphans()
        if not self._services.kafka.config_file.exists():
            return None
        return recover_state(self._dir)

    def _existing_state(self) -> ClusterState:
        state = read_state(self._dir)
        if state is None:
            raise ClusterError(
                f"no cluster was started in {self._dir}", "start it: `rollstream up`"
            )
        return state

    def _take_lease(self, state: ClusterState) -> None:
        if self._lease is None:
            self._lease = User.this_process()
            state = state.with_users(self._lease)
        write_state(self._dir, state)

    def _kill(self, service: Service) -> int:
        pid = self._services.pid(self._existing_state(), service)
        if pid is None:
            raise ClusterError(f"no local {service.name} runs", "start it")
        process.kill(pid, service.tail)
        return pid

    def _restart(self) -> None:
        self._services.fetch_jars()
        with self._locked():
            state = self._existing_state()
            state = self._services.prepare(state, keep=state.kept)
            self._services.ensure(state, partial(write_state, self._dir))


def cluster_dir(settings: Settings) -> Path:
    """Returns the folder of the local cluster."""
    return settings.data_dir / "cluster"


def find_endpoints(settings: Settings) -> Endpoints | None:
    """Returns the cluster that runs, local or configured; starts nothing.

    Raises:
        KafkaUnavailable: The configured brokers do not answer.
    """
    external_id = check_brokers(settings)
    folder = cluster_dir(settings)
    services = Lifecycle(settings, folder, _ignore)
    state = read_state(folder)
    for service in services.wanted():
        if state is None or services.pid(state, service) is None:
            return None
    return _endpoints(settings, state or new_state(), external_id)


def _endpoints(
    settings: Settings, state: ClusterState, external_id: str | None
) -> Endpoints:
    return Endpoints(
        settings.bootstrap_servers or f"{LOOPBACK}:{state.kafka_port}",
        settings.zookeeper or f"{LOOPBACK}:{state.zookeeper_port}",
        external_id or state.cluster_id,
        settings.data_dir,
    )
