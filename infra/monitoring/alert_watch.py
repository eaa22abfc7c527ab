"""Which experiments are watched over, and which of them are over.

Metrics are followed in one thread, specs in another, and alerts told of in a third.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from infra.control.desired import PublishedExperiment
from infra.monitoring.alert_facts import Observed, observed
from infra.monitoring.follow import MetricsFollower

_OBSERVE_S = 0.4


class Watched:
    """What is known of experiments, by name; any thread may call."""

    def __init__(self) -> None:
        self._observed: dict[str, Observed] = {}
        # The offset of the spec that says so, or under which it ended; and why.
        self._over: dict[str, tuple[int, str]] = {}
        self._lock = threading.Lock()

    def observe(
        self, published: PublishedExperiment, follower: MetricsFollower, now_s: float
    ) -> None:
        """See what the metrics say; in the thread that follows them."""
        name = published.experiment.name
        with self._lock:
            over, before = self._over.get(name), self._observed.get(name)
            if over is not None and published.offset <= over[0]:
                return
            self._over.pop(name, None)
            is_known = before is not None and before.published == published
            if before is None or not is_known or now_s - before.at_s >= _OBSERVE_S:
                self._observed[name] = observed(published, follower, now_s)

    def over(self, published: PublishedExperiment, reason: str, now_s: float) -> None:
        """Take in that one is over until there is a newer spec.

        It is watched until that is told, also if it was not before: somebody else may
        have told of alerts of it. Said again, it is no news.
        """
        name = published.experiment.name
        with self._lock:
            before = self._over.get(name)
            self._over[name] = published.offset, reason
            is_news = before is None or before[0] < published.offset
            if is_news and name not in self._observed:
                self._observed[name] = Observed(published, {}, {}, {}, now_s)

    def why_over(self, published: PublishedExperiment) -> str | None:
        """Return why nothing is to be told of it any more; None: it goes on."""
        with self._lock:
            offset, why = self._over.get(published.experiment.name, (-1, ""))
        return why if published.offset <= offset else None

    def keep(self, names: Collection[str]) -> None:
        """Watch these and no others, but for what is over and has to be told of."""
        with self._lock:
            for name in self._observed.keys() - set(names) - self._over.keys():
                del self._observed[name]

    def forget(self, name: str) -> None:
        """Watch one no more, whatever was to be told of it."""
        with self._lock:
            self._observed.pop(name, None)
            self._over.pop(name, None)

    def told(self, facts: Observed) -> None:
        """Watch one no more of which all is told, unless it has changed since."""
        name = facts.published.experiment.name
        with self._lock:
            if self._observed.get(name) is facts:
                del self._observed[name]

    def all(self) -> list[Observed]:
        """Return all that are watched."""
        with self._lock:
            return list(self._observed.values())
