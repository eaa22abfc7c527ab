"""Topics that are followed -> their ids, looked up again and again; nobody waits."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.kafka.identity import TopicIdentity, read_topic_identities

EVERY_S = 5.0
"""So long one that was made anew may go unseen."""

_SOON_S = 1.0
_log = logging.getLogger("rollstream.watch")

_Found = dict[str, TopicIdentity | KafkaException | None]


class TopicIds:
    """Asks for the ids of all of some topics at once, in a thread of its own."""

    def __init__(self, admin: AdminClient) -> None:
        """Ask nothing yet."""
        self._admin = admin
        self._asked: Future[_Found] | None = None
        self._asked_s = float("-inf")

    def poll(self, topics: Collection[str], is_urgent: bool) -> Mapping[str, str]:
        """Return the ids that have come; of what does not exist there is none.

        Args:
            topics: to be asked for now, if it is time.
            is_urgent: it is time for them sooner: some are not known yet.
        """
        if self._asked is not None:
            return self._answer(self._asked) if self._asked.done() else {}
        every_s = _SOON_S if is_urgent else EVERY_S
        if topics and time.monotonic() - self._asked_s >= every_s:
            self._ask(topics)
        return {}

    def _ask(self, topics: Collection[str]) -> None:
        asked: Future[_Found] = Future()

        def ask() -> None:
            try:
                asked.set_result(read_topic_identities(self._admin, topics))
            except Exception as exc:
                asked.set_exception(exc)

        self._asked, self._asked_s = asked, time.monotonic()
        # Not in a pool: nobody's end is to wait for brokers that are away.
        threading.Thread(target=ask, name="topic-ids", daemon=True).start()

    def _answer(self, asked: Future[_Found]) -> dict[str, str]:
        self._asked = None
        try:
            found = asked.result(0)
        except (KafkaException, TimeoutError) as exc:
            _log.debug("topic ids: %s", exc)
            return {}
        return {
            topic: each.topic_id
            for topic, each in found.items()
            if isinstance(each, TopicIdentity)
        }
