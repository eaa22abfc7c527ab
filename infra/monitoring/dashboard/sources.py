"""What the dashboard shows comes from here; a test gives another of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from infra.errors import RollstreamError
from infra.monitoring.snapshot import Snapshot


class Unknown(RollstreamError):
    """There is nothing of that name."""


class Source(Protocol):
    """What is now: ``infra.monitoring.watch.Watch``, for one."""

    @property
    def snapshot(self) -> Snapshot:
        """The latest."""

    def wait_for_newer(self, at_s: float, timeout_s: float) -> Snapshot | None:
        """Wait for one that is newer than ``at_s``; None: there was none in time."""


class Past(Protocol):
    """What was; each method may wait for a broker, and returns what JSON can say.

    Each raises ``Unknown`` where there is no such experiment, and RollstreamError where
    it cannot be read.
    """

    def history(
        self, experiment: str, *, points: int, run_id: str | None, last_s: float | None
    ) -> Mapping[str, Any]:
        """Return the series of a run: of the newest, unless it is named.

        ``{"experiment", "run_id", "runs": [...], "problem", "complete": bool,
        "t": [epoch s], "series": {name: [number or None]}}``; at most ``points`` of
        each, and only the last ``last_s`` seconds where that is given. While it is not
        complete, it is coarse, and the next answer says more.
        """

    def dead_letters(self, experiment: str, limit: int) -> Mapping[str, Any]:
        """Return the newest, newest first: ``{"letters": [...]}``."""

    def events(self, experiment: str, limit: int) -> Mapping[str, Any]:
        """Return the newest, newest first: ``{"events": [...]}``."""
