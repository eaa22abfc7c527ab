"""A dashboard that is served in a thread, and what it may show."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from infra.monitoring.dashboard.server import DashboardServer, bind, url_of
from infra.monitoring.snapshot import Snapshot


class FakeSource:
    """Snapshots that a test shows."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._changed = threading.Condition()
        self.snapshot = snapshot or Snapshot()

    def show(self, snapshot: Snapshot) -> None:
        with self._changed:
            self.snapshot = snapshot
            self._changed.notify_all()

    def wait_for_newer(self, at_s: float, timeout_s: float) -> Snapshot | None:
        with self._changed:
            is_newer = self._changed.wait_for(
                lambda: self.snapshot.at_s > at_s, timeout_s
            )
            return self.snapshot if is_newer else None


class FakePast:
    """Answers as a test says."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def history(self, experiment, *, points, run_id, last_s):
        return self._answer("history", experiment, points, run_id, last_s)

    def dead_letters(self, experiment, limit):
        return self._answer("dead_letters", experiment, limit)

    def events(self, experiment, limit):
        return self._answer("events", experiment, limit)

    def _answer(self, what, *asked):
        self.asked.append((what, *asked))
        found = self.answers.get(what, {})
        if isinstance(found, Exception):
            raise found
        return found(*asked) if callable(found) else found


@contextmanager
def serving(dashboard, port: int = 0) -> Iterator[str]:
    """Serve `create_app(...)` on a port of loopback, 0: any free; yield its address."""
    listening = bind("127.0.0.1", port)
    server = DashboardServer(dashboard)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield url_of(listening)
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()
        assert not thread.is_alive()
