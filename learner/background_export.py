"""An actor -> its graph, exported in a thread of its own.

The exporter is imported there as well. It brings the compiler of torch, onnx and
onnxruntime: seconds that a learner which was killed has better use for.
"""

from __future__ import annotations

import copy
import threading
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

from learner.algorithms.base import Actor

if TYPE_CHECKING:
    from learner.actor_graph import ExportedGraph


# The tracing of torch.export is the whole process's: a second one breaks the first.
_ONE_AT_A_TIME = threading.Lock()


class BackgroundExport:
    """Exports an actor once; the actor goes on learning meanwhile."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._future: Future[ExportedGraph] | None = None

    @property
    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._future is not None

    def start(self) -> None:
        """Begin; the graph is that of a copy of the actor as it is now."""
        copied = replace(self._actor, module=copy.deepcopy(self._actor.module))
        future: Future[ExportedGraph] = Future()
        self._future = future

        def export() -> None:
            try:
                from learner.actor_graph import export_actor

                with _ONE_AT_A_TIME:
                    future.set_result(export_actor(copied))
            except BaseException as exc:
                future.set_exception(exc)

        threading.Thread(target=export, name="export", daemon=True).start()

    def graph(self) -> ExportedGraph | None:
        """Return the graph; None while it is not there.

        Raises:
            GraphMismatch: as ``export_actor``.
        """
        if self._future is None or not self._future.done():
            return None
        return self._future.result()
