"""Large versions -> their tensors, fetched in a thread while environments step."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from infra.control.role import RoleContext
from infra.errors import RollstreamError
from infra.policies.errors import PolicyDamaged
from infra.policies.shared_chunks import SharedChunks
from schemas.records import PolicyVersion

_RETRY_S = 0.5
_CLOSE_S = 2.0
_log = logging.getLogger("rollstream")


@dataclass(frozen=True)
class Fetched:
    """What became of a version that was asked for.

    Attributes:
        version: its record.
        tensors: its safetensors bytes, whose digest is right; None: see ``problem``.
        problem: why there are none, and never will be.
    """

    version: PolicyVersion
    tensors: bytes | None
    problem: str = ""


class RemoteTensors:
    """Brings versions: of those asked for meanwhile, the newest.

    One that is on its way is brought all the same: a learner that publishes faster than
    its versions travel would leave its workers without any.

    Attributes:
        fetched_bytes: from the log by this process; what another one of its host has
            fetched is not in it.
    """

    def __init__(self, open_chunks: Callable[[], SharedChunks]) -> None:
        """``open_chunks`` is called in the thread, when the first version is needed."""
        self.fetched_bytes = 0
        self._open_chunks = open_chunks
        self._changed = threading.Condition()
        self._wanted: PolicyVersion | None = None
        self._fetched: Fetched | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @classmethod
    def of(cls, context: RoleContext) -> RemoteTensors:
        """Return those of a role's run."""

        def open_chunks() -> SharedChunks:
            run = f"{context.experiment.name}/{context.run_id}"
            return SharedChunks(context.settings, run, context.client_id + "-chunks")

        return cls(open_chunks)

    @property
    def is_fetching(self) -> bool:
        """Whether something is on its way."""
        return self._wanted is not None

    def want(self, version: PolicyVersion) -> None:
        """Ask for a version, rather than for those before it."""
        with self._changed:
            if self._wanted == version:
                return
            self._wanted = version
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="policies", daemon=True
                )
                self._thread.start()

    def take(self) -> Fetched | None:
        """Return what has been brought since the last call; never waits."""
        if self._fetched is None:
            return None
        with self._changed:
            fetched, self._fetched = self._fetched, None
            return fetched

    def close(self) -> None:
        """End the thread, unless it waits for a broker that is away."""
        with self._changed:
            self._is_closed, self._wanted = True, None
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        chunks = self._open_chunks()
        try:
            while (version := self._next()) is not None:
                self._bring(chunks, version)
        finally:
            chunks.close()

    def _next(self) -> PolicyVersion | None:
        with self._changed:
            while self._wanted is None and not self._is_closed:
                self._changed.wait()
            return None if self._is_closed else self._wanted

    def _bring(self, chunks: SharedChunks, version: PolicyVersion) -> None:
        try:
            fetched = Fetched(version, chunks.read(version))
        except PolicyDamaged as exc:
            fetched = Fetched(version, None, str(exc))
        except RollstreamError as exc:
            # The broker is away, or there is a newer one: this one is tried again for
            # as long as no other is asked for.
            _log.info("policy version %d: %s", version.version, exc)
            with self._changed:
                self._changed.wait_for(lambda: self._wanted != version, _RETRY_S)
            return
        except Exception as exc:
            _log.exception("policy version %d", version.version)
            fetched = Fetched(version, None, f"{type(exc).__name__}: {exc}")
        self.fetched_bytes = chunks.reader.fetched_bytes
        with self._changed:
            self._fetched = fetched
            if self._wanted == version:
                self._wanted = None
