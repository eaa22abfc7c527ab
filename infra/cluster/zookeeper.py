"""One Apache ZooKeeper on a loopback port."""

from __future__ import annotations

import socket
from pathlib import Path

from infra.cluster.service import LOOPBACK, Service, read_properties, write_properties

JVM_OPTIONS = (
    "-Xmx128m",
    # It does next to nothing: start fast and stay small.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # In kB: its transaction log is allocated in steps of 64 MB otherwise.
    "-Dzookeeper.preAllocSize=1024",
)


def zookeeper_service(data_dir: Path) -> Service:
    """Returns where ZooKeeper's files are."""
    return Service(
        name="zookeeper",
        main_class="org.apache.zookeeper.server.quorum.QuorumPeerMain",
        config_file=data_dir / "zookeeper" / "zoo.cfg",
        log_file=data_dir / "logs" / "zookeeper.log",
    )


def write_config(service: Service, port: int) -> None:
    """Writes zoo.cfg."""
    folder = service.config_file.parent
    (folder / "data").mkdir(parents=True, exist_ok=True)
    write_properties(
        service.config_file,
        {
            "dataDir": str(folder / "data"),
            "clientPort": str(port),
            "clientPortAddress": LOOPBACK,
            # It would listen on all addresses.
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok",
            # Expiry is checked in ticks; sessions may last 2 to 20 of them or more.
            "tickTime": "1000",
            "maxSessionTimeout": "60000",
            # All clients share one address here; the default is 60 of them.
            "maxClientCnxns": "1000",
            "autopurge.snapRetainCount": "3",
            "autopurge.purgeInterval": "1",
        },
    )


def configured_port(service: Service) -> int | None:
    """Returns the port in zoo.cfg."""
    text = read_properties(service.config_file).get("clientPort", "")
    return int(text) if text.isdigit() else None


def answers(port: int) -> bool:
    """Says whether ZooKeeper serves requests on the port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0) as connection:
            connection.sendall(b"srvr")
            return connection.recv(64).startswith(b"Zookeeper version")
    except OSError:
        return False
