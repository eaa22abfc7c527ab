"""The topics that all experiments share -> which there are, and what is said of them.

On a cluster that has no such topics there are no experiments; nothing is made.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from infra.control.desired import PublishedExperiment, SpecFollower
from infra.control.statuses import WHOLE
from infra.kafka.clients import make_admin
from infra.kafka.identity import read_topic_identity
from infra.kafka.reading import Message
from infra.kafka.whole_topic import WholeTopic
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.records import RoleStatus
from schemas.topics import EXPERIMENT_NAME, EXPERIMENTS, STATUS, topic_name

_LOOK_S = 5.0
_ANSWER_S = 1.5


class ControlTopics:
    """Follows specs and statuses, once there are any."""

    def __init__(self, settings: Settings) -> None:
        """Open nothing yet."""
        self._settings = settings
        self._admin = make_admin(settings, "watch")
        self._specs: SpecFollower | None = None
        self._statuses: WholeTopic | None = None
        self._newest: dict[str, RoleStatus] = {}
        self._look_at_s = 0.0

    def poll(self) -> None:
        """Take in what has come.

        Raises:
            RollstreamError: the brokers do not answer.
            KafkaException: likewise.
            TimeoutError: likewise.
        """
        if self._specs is None or self._statuses is None:
            self._open()
        else:
            self._specs.poll(0.0)
            self._take(self._statuses.poll(0.0))

    @property
    def experiments(self) -> dict[str, PublishedExperiment]:
        """Those that a spec is in force of, by name."""
        if self._specs is None:
            return {}
        in_force = self._specs.desired.in_force()
        return {n: e for n, e in in_force.items() if EXPERIMENT_NAME.fullmatch(n)}

    def status(self, experiment: str) -> RoleStatus | None:
        """Return the newest status of a whole experiment; None: there is none."""
        return self._newest.get(experiment)

    def close(self) -> None:
        """Leave the topics."""
        for each in (self._specs, self._statuses):
            if each is not None:
                each.close()

    def _open(self) -> None:
        if time.monotonic() < self._look_at_s:
            return
        self._look_at_s = time.monotonic() + _LOOK_S
        status = topic_name(STATUS)
        for topic in (topic_name(EXPERIMENTS), status):
            if read_topic_identity(self._admin, topic, _ANSWER_S) is None:
                return
        if self._statuses is None:
            self._statuses = WholeTopic(
                self._settings, status, "watch-status", self._newest.clear
            )
        self._take(self._statuses.to_end())
        specs = SpecFollower(self._settings)
        try:
            specs.read_to_end()
        except BaseException:
            specs.close()
            raise
        self._specs = specs

    def _take(self, messages: Iterable[Message]) -> None:
        for message in messages:
            name, _, rest = message.key.partition("/")
            if rest != WHOLE:
                continue
            status = decode_or_none(message.value, RoleStatus)
            if status is not None and status.experiment == name:
                self._newest[name] = status
            elif message.tombstone:
                self._newest.pop(name, None)
