"""Named bytes -> one directory that is there whole or not at all.

A checkpoint is ``<epoch>-<number>/`` with its files and a manifest of their hashes.
Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.control.experiments import run_directory
from infra.control.role import RoleContext
from infra.durable import sync_directory, write_durably
from infra.errors import RollstreamError

KEPT = 2
MANIFEST = "manifest.json"
FORMAT = "rollstream-checkpoint/1"

_NAME = re.compile(r"(\d{12})-(\d{8})")
_UNFINISHED = ".unfinished-"
_MAX_FILE_BYTES = 64 << 30


def checkpoint_directory(context: RoleContext) -> Path:
    """Return where a run's checkpoints are."""
    run = run_directory(context.settings, context.experiment.name, context.run_id)
    return run / "checkpoints"


class CheckpointError(RollstreamError):
    """A checkpoint cannot be written, or is not what its manifest says."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint that was read back and is whole.

    Attributes:
        epoch: of the learner that wrote it.
        number: 1, 2, ... across epochs.
        files: by name.
    """

    epoch: int
    number: int
    files: Mapping[str, bytes]


class CheckpointStore:
    """The checkpoints of one run, in one directory; the two newest are kept.

    Names sort by epoch, then number: a superseded learner that still writes never hides
    what its successor has written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, epoch: int, number: int, files: Mapping[str, bytes]) -> Path:
        """Write a checkpoint; return its directory once it would survive a crash.

        1. The files, then the manifest with their hashes, go to a directory of another
           name, each flushed to the disk, and the directory after them.
        2. One rename gives it its name.
        3. The parent directory is flushed, which makes the rename durable.

        Raises:
            CheckpointError: the disk is full, read-only, or refuses otherwise; the
                checkpoints before are untouched.
        """
        name = f"{epoch:012d}-{number:08d}"
        unfinished = self.root / f"{_UNFINISHED}{name}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(unfinished, ignore_errors=True)
            _write_files(unfinished, files)  # Step 1.
            os.rename(unfinished, self.root / name)  # Step 2.
            sync_directory(self.root)  # Step 3.
        except OSError as exc:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise CheckpointError(
                f"checkpoint {name} cannot be written to {self.root}: "
                f"{exc.strerror or exc}",
                "free space there, or let ROLLSTREAM_DATA_DIR point elsewhere",
            ) from exc
        return self.root / name

    def names(self) -> list[str]:
        """Return the names of what is there, oldest first, whole or not."""
        if not self.root.is_dir():
            return []
        found = (entry.name for entry in self.root.iterdir() if entry.is_dir())
        return sorted(name for name in found if _NAME.fullmatch(name))

    def newest(self) -> tuple[StoredCheckpoint | None, list[CheckpointError]]:
        """Return the newest whole checkpoint, and what is wrong with newer ones."""
        errors: list[CheckpointError] = []
        for name in reversed(self.names()):
            try:
                return self.read(name), errors
            except CheckpointError as exc:
                errors.append(exc)
        return None, errors

    def read(self, name: str) -> StoredCheckpoint:
        """Read a checkpoint and compare it with its manifest.

        Raises:
            CheckpointError: a file is missing, or is not the one that was written.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"expected the name of a checkpoint, found {name!r}")
        directory = self.root / name
        try:
            hashes = _read_manifest(directory)
            files = {file: _read_file(directory, file) for file in hashes}
        except (OSError, ValueError) as exc:
            raise CheckpointError(f"checkpoint {name} cannot be read: {exc}") from exc
        for file, expected in hashes.items():
            found = hashlib.sha256(files[file]).hexdigest()
            if found != expected:
                raise CheckpointError(
                    f"checkpoint {name}: {file} is garbled: expected the hash "
                    f"{expected[:12]}..., found {found[:12]}..."
                )
        return StoredCheckpoint(int(match[1]), int(match[2]), files)

    def prune(self) -> None:
        """Remove all but the two newest, and what was never finished.

        A disk that refuses is told of by the next that is written, or not.
        """
        with contextlib.suppress(OSError):
            for name in self.names()[:-KEPT]:
                shutil.rmtree(self.root / name, ignore_errors=True)

    def remove_unfinished(self) -> None:
        """Remove what a learner that died has left half-written."""
        for path in self.root.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(path, ignore_errors=True)


def _write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    directory.mkdir()
    hashes = {}
    for file, data in files.items():
        hashes[file] = hashlib.sha256(data).hexdigest()
        write_durably(directory / file, data)
    manifest = {"format": FORMAT, "sha256": hashes}
    write_durably(directory / MANIFEST, json.dumps(manifest, indent=1).encode())
    sync_directory(directory)


def _read_manifest(directory: Path) -> dict[str, str]:
    manifest = json.loads(_read_file(directory, MANIFEST))
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{MANIFEST}: expected the format {FORMAT}")
    hashes = manifest.get("sha256")
    if not isinstance(hashes, dict) or not all(
        re.fullmatch(r"[\w.]+", file) for file in hashes
    ):
        raise ValueError(f"{MANIFEST}: expected the hashes of plain file names")
    return hashes


def _read_file(directory: Path, file: str) -> bytes:
    path = directory / file
    # A link could lead anywhere; none is ever written.
    if path.is_symlink() or not path.is_file():
        raise ValueError(f"{file}: expected a plain file, found none")
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise ValueError(f"{file}: expected at most {_MAX_FILE_BYTES} bytes")
    return path.read_bytes()
