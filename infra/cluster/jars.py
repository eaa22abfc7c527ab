"""jars.lock -> the cached jars of Kafka and ZooKeeper, their hashes checked.

Downloaded at first use, exactly those of the lock; afterwards no network is needed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from infra.cluster.process import exclusive_lock
from infra.errors import JarError

LOCK_FILE = Path(__file__).with_name("jars.lock")

# More do not help: the registry answers about this many in parallel.
_NUM_DOWNLOADS = 8
_NUM_TRIES = 3
_LOCK_TIMEOUT_S = 300.0

Report = Callable[[str], None]


@dataclass(frozen=True)
class Jar:
    """One line of jars.lock."""

    group: str
    artifact: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def filename(self) -> str:
        """With the group: two projects have an artifact `metrics-core`."""
        return f"{self.group}.{self.artifact}-{self.version}.jar"


def format_lock(jars: Iterable[Jar]) -> str:
    """Returns the text of jars.lock."""
    return "".join(f"{jar} {jar.sha256}\n" for jar in jars)


def read_lock(path: Path = LOCK_FILE) -> list[Jar]:
    """Reads `group:artifact:version sha256` lines."""
    jars = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        coordinate, _, digest = line.partition(" ")
        parts = coordinate.split(":")
        if len(parts) != 3 or len(digest) != 64:
            raise JarError(
                f"{path} line {number}: expected `group:artifact:version sha256`, "
                f"found {line!r}",
                "install rollstream again, or restore the file from the repository",
            )
        group, artifact, version = parts
        jars.append(Jar(group, artifact, version, digest))
    return jars


def jars_dir(cache_dir: Path) -> Path:
    """Returns the folder of the cached jars."""
    return cache_dir / "jars"


def hash_matches(jar: Jar, path: Path) -> bool:
    """Says whether the file is there and is the one in the lock."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256


def missing_jars(cache_dir: Path, jars: Iterable[Jar]) -> list[Jar]:
    """Returns those that are absent from the cache or differ from the lock."""
    folder, wanted = jars_dir(cache_dir), list(jars)
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        matches = pool.map(lambda jar: hash_matches(jar, folder / jar.filename), wanted)
        return [jar for jar, good in zip(wanted, matches, strict=True) if not good]


def ensure_jars(
    cache_dir: Path, report: Report, lock_file: Path = LOCK_FILE
) -> list[Path]:
    """Returns the class path; downloads first what the cache lacks.

    Raises:
        JarError: No network, or a hash that differs; says what to do.
    """
    jars, folder = read_lock(lock_file), jars_dir(cache_dir)
    if missing_jars(cache_dir, jars):
        _make_dir(folder)
        # Two first runs at once: the second waits, and finds the jars there.
        with exclusive_lock(folder / ".lock", _LOCK_TIMEOUT_S):
            wanted = missing_jars(cache_dir, jars)
            if wanted:
                _download_all(wanted, folder, report)
    return [folder / jar.filename for jar in jars]


def _make_dir(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise JarError(
            f"the jar cache {folder} cannot be made: {exc.strerror}",
            "set ROLLSTREAM_CACHE_DIR to a directory that you may write to",
        ) from exc


def _download_all(jars: list[Jar], folder: Path, report: Report) -> None:
    report(f"downloading {len(jars)} jars of Kafka and ZooKeeper, once, to {folder}")
    # In the same file system, so that the move is atomic.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        pool = ThreadPoolExecutor(_NUM_DOWNLOADS)
        try:
            tasks = [pool.submit(_download, jar, folder, scratch) for jar in jars]
            for done, task in enumerate(as_completed(tasks), start=1):
                task.result()
                if done % 10 == 0 or done == len(jars):
                    report(f"downloaded {done} of {len(jars)} jars")
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _download(jar: Jar, folder: Path, scratch: str) -> None:
    for attempt in range(_NUM_TRIES):
        try:
            path = fetch(jar, Path(scratch) / str(attempt))
            break
        except Exception as exc:  # jgo and requests raise many kinds
            if attempt + 1 == _NUM_TRIES:
                raise JarError(
                    f"{jar} cannot be downloaded: {type(exc).__name__}: {exc}",
                    "check the network and the proxy variables (HTTPS_PROXY) and "
                    f"start again, or copy the folder {folder} from a machine "
                    "where rollstream has run",
                ) from exc
    if not hash_matches(jar, path):
        raise JarError(
            f"{jar}: the downloaded file is not the one in jars.lock, "
            f"expected sha256 {jar.sha256}",
            "start again; if it stays, something between here and the registry "
            "(a proxy?) changes files",
        )
    target = folder / jar.filename
    shutil.move(path, target.with_suffix(".part"))
    os.replace(target.with_suffix(".part"), target)


def fetch(jar: Jar, repository: Path) -> Path:
    """Downloads one jar into a scratch Maven repository; nothing is resolved."""
    from jgo.maven import MavenContext  # 0.3 s to import, and needed only once

    context = MavenContext(repo_cache=repository, timeout=30)
    project = context.project(jar.group, jar.artifact)
    return project.at_version(jar.version).artifact().resolve()
