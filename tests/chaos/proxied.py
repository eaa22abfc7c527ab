"""A local cluster whose broker can be reached directly, and through a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from infra.cluster.local import LocalCluster, cluster_dir
from infra.cluster.service import LOOPBACK, choose_port
from infra.cluster.state import new_state, write_state
from infra.control.restarts import Failures
from infra.control.scheduler import Assignment
from infra.settings import Settings
from tests.chaos.harness import Harness
from tests.chaos.proxy import Proxy


@dataclass(frozen=True)
class Proxied:
    """Whoever is given `behind` goes through the proxy, whatever the broker says."""

    cluster: LocalCluster
    proxy: Proxy
    direct: Settings
    behind: Settings


@contextmanager
def proxied_cluster(own: Settings) -> Iterator[Proxied]:
    """Starts a cluster in a data directory where there is none yet.

    A broker names itself by the listener on which it is asked, so those who come
    through the proxy are told of the proxy's port only, and others of the broker's.
    """
    folder = cluster_dir(own)
    folder.mkdir(parents=True)
    state = new_state()
    taken = [state.kafka_port, state.controller_port, state.zookeeper_port]
    inner = choose_port(taken)
    write_state(folder, state)
    with Proxy(inner) as proxy:
        cluster = LocalCluster(
            own,
            broker_config=_listeners(
                state.kafka_port, inner, proxy.port, state.controller_port
            ),
        )
        try:
            found = cluster.start()
            direct = own.at(found.bootstrap_servers, found.zookeeper)
            behind = own.at(f"{LOOPBACK}:{proxy.port}", found.zookeeper)
            yield Proxied(cluster, proxy, direct, behind)
        finally:
            cluster.stop()


def _listeners(port: int, inner: int, outer: int, controller: int) -> dict[str, str]:
    names = ("PLAINTEXT", "PROXIED", "CONTROLLER")
    return {
        "listeners": ",".join(
            f"{name}://{LOOPBACK}:{each}"
            for name, each in zip(names, (port, inner, controller), strict=True)
        ),
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port},"
        f"PROXIED://{LOOPBACK}:{outer}",
        "listener.security.protocol.map": ",".join(f"{n}:PLAINTEXT" for n in names),
    }


def put_behind(harness: Harness, proxied: Proxied, *roles: str) -> None:
    """Lets some roles reach the broker through the proxy, and others directly."""
    supervisor = harness.supervisor
    spawn = supervisor._spawn

    def spawn_there(assignment: Assignment, failures: Failures) -> Any:
        there = proxied.behind if assignment.role in roles else proxied.direct
        assert there.bootstrap_servers is not None
        supervisor._variables["KAFKA_BOOTSTRAP_SERVERS"] = there.bootstrap_servers
        return spawn(assignment, failures)

    supervisor._spawn = spawn_there  # type: ignore[method-assign]
