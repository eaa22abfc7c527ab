"""A large version -> its tensors, fetched once for all processes of this host."""

from __future__ import annotations

import logging

from infra.policies.chunks import ChunkReader, check_address
from infra.policies.deltas import keyframe_of
from infra.policies.host_files import HostFiles, open_host_files
from infra.settings import Settings
from schemas.records import PolicyVersion

PATIENCE_S = 20.0
"""Nobody waits longer for another process that fetches: it may be stopped."""

_log = logging.getLogger("rollstream")


class SharedChunks:
    """Reads tensors from this host's files, or from the log into them.

    To be used from one thread.

    Attributes:
        reader: fetches what no process of this host has fetched.
    """

    def __init__(
        self,
        settings: Settings,
        run: str,
        client_id: str,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Open them.

        Args:
            settings: where brokers and files are.
            run: of whose policies.
            client_id: names the client in the broker's logs.
            patience_s: how long another process is waited for.
        """
        self.reader = ChunkReader(settings, client_id)
        self._patience_s = patience_s
        self._files: HostFiles | None = open_host_files(settings, run)

    def read(self, version: PolicyVersion) -> bytes:
        """Return a version's tensors, as its digest says they are; raises as fetching.

        1. A file of the host has them: nothing is fetched.
        2. Else who gets the turn fetches, and makes the file appear.
        3. Who waited for the turn finds the file; where it is not there, or is not
           what it should be, fetches alone.
        """
        check_address(version)
        files, sha256, size = self._files, version.tensors_sha256, version.tensors_bytes
        if files is None:
            return self.reader.read(version)
        if (data := files.read(sha256, size)) is not None:  # step 1
            return data
        # Not within the turn: that is taken for it as well.
        base = keyframe_of(version)
        keyframe = self.read(base) if base is not None else None
        with files.turn(self._patience_s) as is_ours:  # step 2
            if not files.has(sha256, size):
                data = self.reader.read(version, keyframe)
                if is_ours:
                    self._write(files, sha256, data)
                return data
        data = files.read(sha256, size)  # step 3
        return self.reader.read(version, keyframe) if data is None else data

    def close(self) -> None:
        """Leave the broker, and the host's files."""
        self.reader.close()
        if self._files is not None:
            self._files.close()

    def _write(self, files: HostFiles, sha256: str, data: bytes) -> None:
        try:
            files.write(sha256, data)
        except OSError as exc:
            _log.warning("policies cannot be shared on this host: %s", exc)
