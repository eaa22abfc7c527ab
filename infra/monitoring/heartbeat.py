"""A role process says that it lives, also while its own work keeps it silent.

A step of an environment or an update may take longer than a process may be silent. A
thread goes on then: who is frozen or gone is silent, who hangs only does nothing.
"""

from __future__ import annotations

import threading
import time

from infra.monitoring.reporter import Reporter

BEAT_S = 2.0
_LOOK_S = 0.5


class Heartbeat:
    """Sends a report without values when there was no other for BEAT_S."""

    def __init__(self) -> None:
        self._reporter: Reporter | None = None
        self._is_started = False

    def begin(self, reporter: Reporter) -> None:
        """Beat for an incarnation from now on, instead of for the one before."""
        self._reporter = reporter
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def end(self) -> None:
        """Beat no more."""
        self._reporter = None

    def _run(self) -> None:
        while (reporter := self._reporter) is not None:
            if time.monotonic() - reporter.said_at_s >= BEAT_S:
                reporter.beat()
            time.sleep(_LOOK_S)
