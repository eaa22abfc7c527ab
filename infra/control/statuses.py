"""The topic of statuses: what an experiment is doing, and how it ended."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable

from infra.clock import now_ms
from infra.control.experiments import PublishedExperiment
from infra.kafka.delivery import Sender
from infra.kafka.reading import Message, read_to_end
from infra.kafka.whole_topic import WholeTopic
from infra.monitoring.summary import Summary
from infra.settings import Settings
from schemas.codec import decode_or_none, encode
from schemas.records import RoleStatus
from schemas.topics import STATUS, topic_name

WHOLE_ROLE = "experiment"
"""What a status or event is about that is about no role."""

WHOLE = f"{WHOLE_ROLE}/0"


def publish_status(
    sender: Sender,
    published: PublishedExperiment,
    state: str,
    reason: str,
    summary: Summary | None = None,
    *,
    timeout_s: float = 30.0,
) -> None:
    """Publish the state of a whole experiment, durably; raises DeliveryError."""
    told = summary.to_json() if summary else None
    name, run_id = published.experiment.name, published.run_id
    status = make_status(name, run_id, WHOLE_ROLE, 0, state, reason, summary=told)
    sender.send_and_wait(
        topic_name(STATUS), encode(status), status_key(status), timeout_s=timeout_s
    )


def make_status(
    experiment: str,
    run_id: str,
    role: str,
    index: int,
    state: str,
    reason: str,
    *,
    pid: int | None = None,
    restarts: int = 0,
    summary: str | None = None,
) -> RoleStatus:
    """Return a status of now, of a role or of the experiment as a whole.

    Args:
        experiment: its name.
        run_id: of which run.
        role: WHOLE_ROLE for all of it.
        index: within the role; 0 for the experiment.
        state: in a word.
        reason: in words.
        pid: of the role's process; None: ours, who say so.
        restarts: how often it failed.
        summary: of the whole, as JSON.
    """
    return RoleStatus(
        experiment=experiment,
        run_id=run_id,
        role=role,
        index=index,
        state=state,
        host=platform.node(),
        pid=os.getpid() if pid is None else pid,
        restarts=restarts,
        reason=reason,
        updated_at_ms=now_ms(),
        summary=summary,
    )


def status_key(status: RoleStatus) -> str:
    """Return the key of its record."""
    return f"{status.experiment}/{status.role}/{status.index}"


def read_summary(settings: Settings, experiment: str, run_id: str) -> Summary | None:
    """Return the summary of a run that is finished; None when it is not."""
    status = read_states(settings, experiment).get(experiment)
    if status is None or status.run_id != run_id or status.state != "finished":
        return None
    return summary_of(status)


def summary_of(status: RoleStatus) -> Summary | None:
    """Return the summary in a status; None where there is none that we can read."""
    if not status.summary:
        return None
    try:
        return Summary.from_json(status.summary)
    except ValueError:
        return None


def wall_of(status: RoleStatus | None) -> float:
    """Return for how many seconds a run had gone on by its newest status."""
    summary = summary_of(status) if status else None
    wall_s = summary.wall_s if summary else 0.0
    return wall_s if 0 <= wall_s < 1e12 else 0.0


def read_states(settings: Settings, only: str | None = None) -> dict[str, RoleStatus]:
    """Return the newest status of each whole experiment, or of ``only`` that one."""
    newest: dict[str, Message] = {}
    end = f"{only or ''}/{WHOLE}"
    for message in read_to_end(settings, topic_name(STATUS)):
        if message.key == end or (only is None and message.key.endswith(end)):
            newest[message.key] = message
    found = {}
    for key, message in newest.items():
        status = None if message.tombstone else _state(key, message)
        if status is not None:
            found[status.experiment] = status
    return found


def _state(key: str, message: Message) -> RoleStatus | None:
    status = decode_or_none(message.value, RoleStatus)
    return status if status and key == f"{status.experiment}/{WHOLE}" else None


class StateFollower:
    """Follows the status of one whole experiment.

    Attributes:
        newest: its newest status that can be read; None: there is none.
    """

    def __init__(self, settings: Settings, experiment: str) -> None:
        self.newest: RoleStatus | None = None
        self._key = f"{experiment}/{WHOLE}"
        self._topic = WholeTopic(
            settings, topic_name(STATUS), f"{experiment}-state", self._forget
        )
        self._take(self._topic.to_end())

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take in what has come."""
        self._take(self._topic.poll(timeout_s))

    def close(self) -> None:
        """Leave the topic."""
        self._topic.close()

    def _take(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.key == self._key:
                self.newest = None if message.tombstone else _state(self._key, message)

    def _forget(self) -> None:
        self.newest = None
