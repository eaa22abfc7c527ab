"""state -> state: what starts, adopts and stops the two services.

The caller holds the data directory's lock.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from infra.cluster import broker, process, zookeeper
from infra.cluster.jars import ensure_jars
from infra.cluster.service import (
    Service,
    becomes_free,
    check_disk,
    choose_port,
    launch,
    wait_until,
)
from infra.cluster.state import ClusterState, write_state
from infra.errors import ClusterError
from infra.settings import Settings

# Generous: on a laptop that is swapping, or has other work for all its cores, a start
# took a minute; a broken one fails at once anyway.
_READY_TIMEOUT_S = 180.0
# How long a running service may be silent before it counts as hung.
_ADOPT_TIMEOUT_S = 30.0
# What was started for nothing has no data worth a long goodbye.
_ABANDON_TIMEOUT_S = 1.0
# The share of the stop time that Kafka gets; ZooKeeper has little to write.
_KAFKA_SHARE = 0.75


class Lifecycle:
    """Starts and stops the services that the settings leave to us."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        report: Callable[[str], None],
        broker_config: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._report = report
        self._broker_config = broker_config
        self.kafka = broker.broker_service(folder)
        self.zookeeper = zookeeper.zookeeper_service(folder)
        self._class_path: list[Path] = []

    def wanted(self) -> list[Service]:
        """Returns the services that are not configured to be elsewhere."""
        wanted = []
        if self._settings.zookeeper is None:
            wanted.append(self.zookeeper)
        if self._settings.bootstrap_servers is None:
            wanted.append(self.kafka)
        return wanted

    def fetch_jars(self) -> None:
        """Makes sure of the jars; the lock is not needed, and not to be held long."""
        if self.wanted():
            self._class_path = ensure_jars(self._settings.cache_dir, self._report)

    def pid(self, state: ClusterState, service: Service) -> int | None:
        """Returns the pid of the service if it runs."""
        pid = state.kafka_pid if service is self.kafka else state.zookeeper_pid
        return pid if process.is_ours(pid, service.tail) else None

    def end_orphans(self) -> None:
        """Ends services whose data directory was removed while they ran."""
        for service in (self.kafka, self.zookeeper):
            pid = process.find_process(service.tail)
            if pid is not None and not service.config_file.exists():
                self._report(f"{service.name} (pid {pid}) has lost its files: ended")
                process.kill(pid, service.tail)

    def prepare(self, state: ClusterState, keep: bool) -> ClusterState:
        """Brings the state up to date with what is there before anything starts."""
        state = state.with_users()
        running = {
            service.name
            for service in (self.kafka, self.zookeeper)
            if self.pid(state, service) is not None
        }
        # Data that was removed by hand takes its identity with it.
        stored = broker.stored_cluster_id(self.kafka)
        if stored != state.cluster_id and "kafka" not in running:
            cluster_id = stored or broker.new_cluster_id()
            state = state.model_copy(update={"cluster_id": cluster_id})
        # What was kept and is gone (a reboot) is no longer kept.
        kept = keep or (state.kept and bool(running))
        return self._move_ports(state.model_copy(update={"kept": kept}), running)

    def ensure(
        self, state: ClusterState, keep: Callable[[ClusterState], None]
    ) -> ClusterState:
        """Starts in parallel what is wanted and not running, and waits for all.

        What was started for this call is ended if anything interrupts it, `keep` too.

        Args:
            state: as `prepare` returned it.
            keep: writes down who uses what runs now; from then on they are to end it.

        Raises:
            ClusterError: Names the service and what its log says.
        """
        begun: list[Service] = []
        try:
            for service in self.wanted():
                if self._adopt(state, service):
                    continue
                begun.append(service)
                state = self._launch(state, service)
            for service in begun:
                self._wait(state, service, _READY_TIMEOUT_S)
            keep(state)
        except BaseException:
            # Also on Ctrl-C: nobody has a lease on what we began. Found by its command
            # line, since the state may not have its pid yet.
            with ExitStack() as ending:  # each, the last first, whatever one raises
                for service in begun:
                    ending.callback(_abandon, service)
            raise
        return state

    def stop(self, state: ClusterState, timeout_s: float) -> ClusterState:
        """Stops Kafka, then ZooKeeper; each is killed at its deadline."""
        deadline = time.monotonic() + timeout_s
        for service, share in ((self.kafka, _KAFKA_SHARE), (self.zookeeper, 1.0)):
            pid = self.pid(state, service)
            left = max(0.5, (deadline - time.monotonic()) * share)
            if pid is not None:
                # A frozen process would not see SIGTERM before its deadline.
                process.send_signal(pid, service.tail, signal.SIGCONT)
            if not process.stop(pid, service.tail, left):
                self._report(f"{service.name} did not stop in {left:.1f} s: killed")
        return state.model_copy(update={"kafka_pid": None, "zookeeper_pid": None})

    def _move_ports(self, state: ClusterState, running: set[str]) -> ClusterState:
        owners = {
            "kafka_port": self.kafka,
            "controller_port": self.kafka,
            "zookeeper_port": self.zookeeper,
        }
        ports = {name: int(getattr(state, name)) for name in owners}
        for name, service in owners.items():
            if service not in self.wanted() or service.name in running:
                continue
            if becomes_free(ports[name]):
                continue
            if state.users:
                raise ClusterError(
                    f"port {ports[name]} of the local {service.name} is taken by "
                    f"another process, and {len(state.users)} running processes "
                    "rely on it",
                    f"end what listens on port {ports[name]}, or end those runs",
                )
            taken, ports[name] = ports[name], choose_port(list(ports.values()))
            self._report(
                f"port {taken} is taken: {service.name} moves to {ports[name]}"
            )
        return state.model_copy(update=ports)

    def _adopt(self, state: ClusterState, service: Service) -> bool:
        """Says whether the service runs and answers; ends it if it hangs."""
        pid = self.pid(state, service)
        if pid is None:
            return False
        try:
            self._wait(state, service, _ADOPT_TIMEOUT_S)
        except ClusterError as exc:
            if state.users:
                raise
            self._report(f"{exc.problem}; it is replaced")
            process.kill(pid, service.tail)
            return False
        self._report(f"using the running {service.name} (pid {pid})")
        return True

    def _launch(self, state: ClusterState, service: Service) -> ClusterState:
        self._report(f"starting {service.name}")
        check_disk(self._folder)
        if service is self.kafka:
            broker.write_config(
                service,
                state.kafka_port,
                state.controller_port,
                self._broker_config,
            )
            if broker.stored_cluster_id(service) is None:
                broker.format_storage(service, self._class_path, state.cluster_id)
            pid = launch(service, self._class_path, broker.JVM_OPTIONS)
        else:
            zookeeper.write_config(service, state.zookeeper_port)
            pid = launch(service, self._class_path, zookeeper.JVM_OPTIONS)
        state = state.model_copy(update={f"{service.name}_pid": pid})
        # At once: if we are killed now, the next start must find the process.
        write_state(self._folder, state)
        return state

    def _wait(self, state: ClusterState, service: Service, timeout_s: float) -> None:
        pid = state.kafka_pid if service is self.kafka else state.zookeeper_pid
        assert pid is not None
        if service is self.kafka:
            port, cluster_id = state.kafka_port, state.cluster_id
            ready = partial(broker.answers, self._settings, port, cluster_id)
        else:
            ready = partial(zookeeper.answers, state.zookeeper_port)
        wait_until(service, pid, ready, timeout_s)


def _abandon(service: Service) -> None:
    pid = process.find_process(service.tail)
    process.stop(pid, service.tail, _ABANDON_TIMEOUT_S)
