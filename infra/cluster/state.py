"""state.json of the local cluster: ports, cluster id, processes and who uses them."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.cluster import broker, process, zookeeper
from infra.cluster.service import choose_port
from infra.errors import ClusterError

# The system's clock may be stepped between two readings of a process's start.
_CLOCK_STEP_S = 2.0


class User(BaseModel):
    """One process that works with the cluster, and has not released it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    started: float
    token: str

    @classmethod
    def this_process(cls) -> User:
        """Returns a new lease of this process."""
        started = process.start_time(os.getpid())
        return cls(pid=os.getpid(), started=started or 0.0, token=uuid.uuid4().hex)

    def is_alive(self) -> bool:
        """Says whether it still runs, and is not another with a recycled pid."""
        started = process.start_time(self.pid)
        return started is not None and abs(started - self.started) < _CLOCK_STEP_S


class ClusterState(BaseModel):
    """What is kept between runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster_id: str = Field(min_length=1)
    kafka_port: int = Field(gt=0, lt=65536)
    controller_port: int = Field(gt=0, lt=65536)
    zookeeper_port: int = Field(gt=0, lt=65536)
    kafka_pid: int | None = None
    zookeeper_pid: int | None = None
    kept: bool = False
    """Started by `rollstream up`: stays until `rollstream down`."""
    users: tuple[User, ...] = ()

    def with_users(self, *added: User, without: User | None = None) -> ClusterState:
        """Returns the state with live users only, `added` and less `without`."""
        live = [user for user in self.users if user.is_alive() and user != without]
        return self.model_copy(update={"users": (*live, *added)})


def state_file(data_dir: Path) -> Path:
    """Returns the path of state.json."""
    return data_dir / "state.json"


def new_state() -> ClusterState:
    """Chooses an id and free ports."""
    ports: list[int] = []
    for _ in range(3):
        ports.append(choose_port(ports))
    return ClusterState(
        cluster_id=broker.new_cluster_id(),
        kafka_port=ports[0],
        controller_port=ports[1],
        zookeeper_port=ports[2],
    )


def read_state(data_dir: Path) -> ClusterState | None:
    """Reads state.json; None where there is none or it is damaged."""
    try:
        return ClusterState.model_validate_json(state_file(data_dir).read_bytes())
    except (OSError, ValidationError):
        return None


def write_state(data_dir: Path, state: ClusterState) -> None:
    """Replaces state.json in one step.

    Raises:
        ClusterError: The disk is full or read-only.
    """
    path = state_file(data_dir)
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_text(state.model_dump_json(indent=1) + "\n")
        temporary.replace(path)
    except OSError as exc:
        raise ClusterError(
            f"{path} cannot be written: {exc.strerror}",
            "free some disk space, or set ROLLSTREAM_DATA_DIR to a directory that "
            "you may write to",
        ) from exc


def recover_state(data_dir: Path) -> ClusterState:
    """Rebuilds a lost state from the services' own files and processes.

    What still runs is marked as kept: who uses it cannot be known.
    """
    kafka, keeper = (
        broker.broker_service(data_dir),
        zookeeper.zookeeper_service(data_dir),
    )
    fresh = new_state()
    ports = broker.configured_ports(kafka)
    kafka_port, controller_port = ports or (fresh.kafka_port, fresh.controller_port)
    kafka_pid = process.find_process(kafka.tail)
    zookeeper_pid = process.find_process(keeper.tail)
    return ClusterState(
        cluster_id=broker.stored_cluster_id(kafka) or fresh.cluster_id,
        kafka_port=kafka_port,
        controller_port=controller_port,
        zookeeper_port=zookeeper.configured_port(keeper) or fresh.zookeeper_port,
        kafka_pid=kafka_pid,
        zookeeper_pid=zookeeper_pid,
        kept=kafka_pid is not None or zookeeper_pid is not None,
    )
