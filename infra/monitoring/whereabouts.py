"""On which host each role of a run is, or was last: by its Member and its status."""

from __future__ import annotations

from typing import Any

from infra.control.statuses import WHOLE_ROLE
from infra.kafka.reading import latest_by_key
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.records import Member, RoleStatus
from schemas.topics import MEMBERS, STATUS, topic_name

_TIMEOUT_S = 10.0


def role_hosts(
    settings: Settings, experiment: str, run_id: str
) -> dict[tuple[str, int], str]:
    """Return the host of each role, by role and index; the newest record says it.

    Raises:
        RollstreamError: the topics cannot be read.
    """
    newest: dict[tuple[str, int], tuple[int, str]] = {}
    for topic in (topic_name(MEMBERS, experiment), topic_name(STATUS)):
        for message in latest_by_key(settings, topic, timeout_s=_TIMEOUT_S).values():
            record: Any = decode_or_none(message.value, Member, RoleStatus)
            if record is None:
                continue
            who = record.role, record.index
            ours = (record.experiment, record.run_id) == (experiment, run_id)
            if ours and record.role != WHOLE_ROLE:
                found = message.timestamp_ms, record.host
                newest[who] = max(newest.get(who, found), found)
    return {who: host for who, (_, host) in sorted(newest.items())}
