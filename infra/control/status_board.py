"""The topic of statuses -> the newest of each experiment and role, kept up to date."""

from __future__ import annotations

from infra.control.statuses import status_key
from infra.kafka.reading import Message
from infra.kafka.whole_topic import WholeTopic
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.records import RoleStatus
from schemas.topics import STATUS, topic_name


class StatusBoard:
    """Follows the topic from its beginning."""

    def __init__(self, settings: Settings) -> None:
        self._newest: dict[str, dict[str, RoleStatus]] = {}
        self._topic = WholeTopic(
            settings, topic_name(STATUS), "statuses", self._newest.clear
        )

    def of(self, experiment: str, run_id: str) -> dict[str, RoleStatus]:
        """Return the newest statuses of a run, by ``role/index``."""
        found = self._newest.get(experiment, {})
        return {key: each for key, each in found.items() if each.run_id == run_id}

    def poll(self) -> None:
        """Take in what has come."""
        for message in self._topic.poll(0.0):
            self._take(message)

    def read_to_end(self) -> None:
        """Take in all that there is now.

        Raises:
            KafkaUnavailable: the brokers do not answer.
            TopicError: there is no such topic.
        """
        for message in self._topic.to_end():
            self._take(message)

    def close(self) -> None:
        """Leave the topic."""
        self._topic.close()

    def _take(self, message: Message) -> None:
        experiment, _, key = message.key.partition("/")
        if message.tombstone:
            left = self._newest.get(experiment, {})
            left.pop(key, None)
            if not left:
                self._newest.pop(experiment, None)
            return
        status = decode_or_none(message.value, RoleStatus)
        if status and message.key == status_key(status):
            self._newest.setdefault(experiment, {})[key] = status
