"""The topic of statuses: what an experiment is doing, and how it ended."""

from __future__ import annotations

import os
import platform

from infra.clock import now_ms
from infra.control.experiments import PublishedExperiment
from infra.kafka.delivery import Sender
from infra.kafka.reading import latest_by_key
from infra.monitoring.summary import Summary
from infra.settings import Settings
from schemas.codec import decode, encode
from schemas.records import RoleStatus
from schemas.topics import STATUS, topic_name


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
    status = RoleStatus(
        experiment=published.experiment.name,
        run_id=published.run_id,
        role="experiment",
        index=0,
        state=state,
        host=platform.node(),
        pid=os.getpid(),
        restarts=0,
        reason=reason,
        updated_at_ms=now_ms(),
        summary=summary.to_json() if summary else None,
    )
    key = f"{status.experiment}/{status.role}/{status.index}"
    sender.send_and_wait(topic_name(STATUS), encode(status), key, timeout_s=timeout_s)


def read_summary(settings: Settings, experiment: str, run_id: str) -> Summary | None:
    """Return the summary of a run that is finished; None when it is not."""
    message = latest_by_key(settings, topic_name(STATUS)).get(
        f"{experiment}/experiment/0"
    )
    if message is None:
        return None
    status = decode(message.value, RoleStatus)
    if status.run_id != run_id or status.state != "finished" or not status.summary:
        return None
    return Summary.from_json(status.summary)
