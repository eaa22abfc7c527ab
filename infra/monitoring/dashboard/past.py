"""What topics hold of an experiment's past -> what the page shows of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infra.clock import now_ms
from infra.kafka.clients import make_admin
from infra.kafka.dead_letters import Letter, letter_of, marked
from infra.kafka.identity import find_topic
from infra.kafka.reading import Message
from infra.monitoring.dashboard.history import MetricsHistory
from infra.monitoring.dashboard.sources import Source, Unknown
from infra.monitoring.metric_tails import read_tails
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.records import Event
from schemas.topics import DEAD_LETTERS, EVENTS, Topic, topic_name

# A letter's mark stands behind it; of so many records for each that is asked for, some
# are marks. A letter may have 64 kB.
_LETTERS_FOR_ONE = 2
_MOST_LETTERS = 1_000
_TIMEOUT_S = 10.0


class TopicPast:
    """Reads topics; each answer takes a moment, whatever they hold.

    Its methods may be called from any thread.
    """

    def __init__(
        self, settings: Settings, run_of: Callable[[str], str | None] = lambda _: None
    ) -> None:
        """Connect to nothing that has to answer.

        Args:
            settings: a cluster.
            run_of: the newest run of an experiment; None: not known.
        """
        self._settings = settings
        self._run_of = run_of
        self._admin = make_admin(settings, "rollstream-dashboard")
        self._history = MetricsHistory(settings, self._admin)

    def close(self) -> None:
        """Read no more."""
        self._history.close()

    def history(
        self,
        experiment: str,
        *,
        points: int,
        run_id: str | None = None,
        last_s: float | None = None,
    ) -> Mapping[str, Any]:
        """Return the series of a run."""
        chosen = run_id or self._run_of(experiment)
        return self._history.read(
            experiment, points=points, run_id=chosen, last_s=last_s
        )

    def dead_letters(self, experiment: str, limit: int) -> Mapping[str, Any]:
        """Return the newest letters; of those that were put back it says where to.

        Of a record that was buried twice, that is known where both are among them.
        """
        count = min(_LETTERS_FOR_ONE * limit, _MOST_LETTERS)
        tail = self._tail(DEAD_LETTERS, experiment, count)
        letters = marked(filter(None, map(letter_of, tail)), experiment)
        now = now_ms()
        shown = [_letter(each, now) for each in letters[-limit:]]
        return {"letters": shown[::-1]}

    def events(self, experiment: str, limit: int) -> Mapping[str, Any]:
        """Return the newest events, of all runs."""
        now, shown = now_ms(), []
        for message in self._tail(EVENTS, experiment, limit):
            event = decode_or_none(message.value, Event)
            if event is not None and event.experiment == experiment:
                shown.append(_event(event, message, now))
        return {"events": shown[::-1]}

    def _tail(self, topic: Topic, experiment: str, count: int) -> list[Message]:
        name = topic_name(topic, experiment)
        if find_topic(self._admin, name, _TIMEOUT_S) is None:
            raise Unknown(f"there is no experiment {experiment}")
        return read_tails(self._settings, {name: count}).get(name, [])


def newest_run(source: Source) -> Callable[[str], str | None]:
    """Return what looks a run up in the latest snapshot."""

    def run_of(experiment: str) -> str | None:
        for each in source.snapshot.experiments:
            if each.experiment == experiment:
                return each.run_id or None
        return None

    return run_of


def _letter(letter: Letter, now: int) -> dict[str, Any]:
    record = letter.record
    return {
        "number": letter.number,
        "source": record.source.topic,
        "partition": record.source.partition,
        "offset": record.source.offset,
        "error": record.error,
        "age_s": _age_s(letter.appended_at_ms, now),
        "role": record.reader,
        "reinjected": letter.reinjected,
    }


def _event(event: Event, message: Message, now: int) -> dict[str, Any]:
    return {
        "offset": message.offset,
        "at_s": message.timestamp_ms / 1000,
        "age_s": _age_s(message.timestamp_ms, now),
        "run_id": event.run_id,
        "severity": event.severity,
        "kind": event.kind,
        "role": event.role,
        "index": event.index,
        "reason": event.reason,
    }


def _age_s(at_ms: int, now: int) -> float:
    return max(0, now - at_ms) / 1000
