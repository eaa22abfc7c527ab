"""Tensors of large versions as files that the processes of one host share.

A file is named by the sha256 of what has to be in it, and is nothing but bytes until
whoever reads it has found that digest. Who holds the lock of the directory fetches; the
kernel gives it back when that process dies.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from infra.settings import Settings

SHARED_MEMORY = Path("/dev/shm")
KEPT = 3
"""Files that stay: the newest, the one that somebody may be reading still, and the
keyframe that the next one is made from."""

_LEAST_SHARED_BYTES = 1 << 30
_POLL_S = 0.005
_TRIES = 5
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOCK, _USERS = "lock", "users"
_log = logging.getLogger("rollstream")


class NotOurs(OSError):
    """A directory or file is of somebody else, or open to others."""


def root_of(settings: Settings) -> Path:
    """Return where this host's processes share files: memory, where there is enough."""
    with suppress(OSError):
        found = os.statvfs(SHARED_MEMORY)
        if found.f_blocks * found.f_frsize >= _LEAST_SHARED_BYTES:
            return SHARED_MEMORY / f"rollstream-{os.geteuid()}"
    return settings.cache_dir / "policies"


class HostFiles:
    """The files of one run on this host; whoever comes first makes the directory."""

    def __init__(self, root: Path, run: str) -> None:
        """Open them, and remove what runs without a living process have left.

        Args:
            root: a directory of this user alone, made if it is missing.
            run: of whose policies; its sha256 names a directory.

        Raises:
            OSError: it cannot be made, or others could write to it.
        """
        self._name = hashlib.sha256(run.encode()).hexdigest()
        root.parent.mkdir(parents=True, exist_ok=True)
        self._root = _open_directory(str(root))
        try:
            self._directory, self._users = self._enter()
        except OSError:
            os.close(self._root)
            raise
        self._sweep()

    def close(self) -> None:
        """Leave; the last to do so takes everything along."""
        fcntl.flock(self._users, fcntl.LOCK_UN)
        os.close(self._users)
        os.close(self._directory)
        self._remove_if_unused(self._name)
        os.close(self._root)

    def read(self, sha256: str, size: int) -> bytes | None:
        """Return what a file holds; None: it is not there, or is not what it says."""
        if not self.has(sha256, size):
            return None
        data = b""
        with suppress(OSError):
            data = self._read(sha256, size)
        if hashlib.sha256(data).hexdigest() == sha256:
            return data
        self._remove(sha256)
        return None

    def has(self, sha256: str, size: int) -> bool:
        """Whether a file of ours has the name and the size; not what is in it."""
        try:
            found = os.stat(sha256, dir_fd=self._directory, follow_symlinks=False)
        except OSError:
            return False
        return _is_ours(found) and stat.S_ISREG(found.st_mode) and found.st_size == size

    def write(self, sha256: str, data: bytes) -> None:
        """Make a file appear whole; remove older ones. Only for who has the turn.

        Raises:
            OSError: there is no room, or no directory any more.
        """
        self._remove_others(KEPT - 1)
        part = f"{sha256}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        number = os.open(part, flags, 0o600, dir_fd=self._directory)
        try:
            with open(number, "wb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
            os.replace(
                part, sha256, src_dir_fd=self._directory, dst_dir_fd=self._directory
            )
        except OSError:
            self._remove(part)
            raise

    @contextmanager
    def turn(self, patience_s: float) -> Iterator[bool]:
        """Wait until no other process has the turn; yield whether it is ours.

        It is not when ``patience_s`` are over: its holder hangs.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(_LOCK, flags, 0o600, dir_fd=self._directory)
        try:
            deadline_s = time.monotonic() + patience_s
            while not (ours := _lock(lock, fcntl.LOCK_EX)):
                if time.monotonic() > deadline_s:
                    break
                time.sleep(_POLL_S)
            yield ours
        finally:
            # Not closed alone: a child of this process may have it open as well.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def _read(self, name: str, size: int) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, dir_fd=self._directory), "rb") as file:
            os.utime(file.fileno())  # what is used stays
            return file.read(size + 1)

    def _enter(self) -> tuple[int, int]:
        """Return the run's directory and its file of users, marked as used."""
        for _ in range(_TRIES):
            directory = _open_directory(self._name, self._root)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            users = os.open(_USERS, flags, 0o600, dir_fd=directory)
            fcntl.flock(users, fcntl.LOCK_SH)
            with suppress(OSError):
                there = os.stat(f"{self._name}/{_USERS}", dir_fd=self._root)
                if os.path.samestat(there, os.fstat(users)):
                    return directory, users
            # Who left last has removed it in between.
            os.close(users)
            os.close(directory)
        raise OSError(errno.EBUSY, "it is removed again and again", self._name)

    def _sweep(self) -> None:
        for name in os.listdir(self._root):
            if name != self._name and _SHA256.fullmatch(name):
                self._remove_if_unused(name)

    def _remove_if_unused(self, name: str) -> None:
        with suppress(OSError):
            directory = os.open(name, _DIRECTORY, dir_fd=self._root)
            try:
                users = os.open(_USERS, os.O_RDWR | os.O_NOFOLLOW, dir_fd=directory)
                try:
                    if _lock(users, fcntl.LOCK_EX):
                        self._empty(directory)
                        os.rmdir(name, dir_fd=self._root)
                finally:
                    os.close(users)
            finally:
                os.close(directory)

    def _empty(self, directory: int) -> None:
        for each in sorted(os.listdir(directory), key=lambda each: each == _USERS):
            os.unlink(each, dir_fd=directory)

    def _remove_others(self, keep: int) -> None:
        """Remove all but the newest files, and what a killed writer has left."""
        aged: list[tuple[int, str]] = []
        for name in os.listdir(self._directory):
            with suppress(OSError):
                found = os.stat(name, dir_fd=self._directory, follow_symlinks=False)
                if _SHA256.fullmatch(name) and stat.S_ISREG(found.st_mode):
                    aged.append((found.st_mtime_ns, name))
                elif name not in (_LOCK, _USERS):
                    self._remove(name)
        for _, name in sorted(aged)[: len(aged) - keep]:
            self._remove(name)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self._directory)


def open_host_files(settings: Settings, run: str) -> HostFiles | None:
    """Return a run's files on this host; None where they cannot be shared."""
    root = root_of(settings)
    try:
        return HostFiles(root, run)
    except OSError as exc:
        _log.warning(
            "%s: policies are not shared on this host, each process fetches its own: "
            "%s",
            root,
            exc,
        )
        return None


def _open_directory(path: str, inside: int | None = None) -> int:
    with suppress(FileExistsError):
        os.mkdir(path, 0o700, dir_fd=inside)
    number = os.open(path, _DIRECTORY, dir_fd=inside)
    if _is_ours(os.fstat(number)):
        return number
    os.close(number)
    raise NotOurs(errno.EPERM, "expected a directory of this user alone", path)


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _lock(number: int, how: int) -> bool:
    try:
        fcntl.flock(number, how | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True
