"""Threads whose death is seen."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from infra.errors import RollstreamError

_log = logging.getLogger("rollstream.agent")


class Threads:
    """Starts threads of a process, which ends when one of them fails."""

    def __init__(self) -> None:
        self._failure: tuple[str, BaseException] | None = None

    def start(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """Start a thread; it does not keep the process alive."""
        thread = threading.Thread(
            target=self._run, args=(name, run), name=name, daemon=True
        )
        thread.start()
        return thread

    def check(self) -> None:
        """Raise RollstreamError if something ended a thread."""
        if self._failure is not None:
            name, exc = self._failure
            raise RollstreamError(
                f"the thread {name!r} ended: {type(exc).__name__}: {exc}"
            ) from exc

    def _run(self, name: str, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as exc:
            _log.exception("the thread %r ends the process", name)
            self._failure = self._failure or (name, exc)
