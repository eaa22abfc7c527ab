"""The topic of experiments: read what is in force, publish a spec."""

from __future__ import annotations

import re
import secrets
import time
from calendar import timegm
from collections.abc import Iterator
from pathlib import Path

from infra.clock import now_ms
from infra.control.desired import (
    MAX_RECORD_BYTES,
    RUN_ID,
    Desired,
    Entry,
    PublishedExperiment,
)
from infra.errors import RollstreamError, TopicError
from infra.kafka.clients import make_admin
from infra.kafka.delivery import Sender
from infra.kafka.identity import find_topic
from infra.kafka.reading import Message, read_to_end
from infra.settings import Settings
from schemas.codec import encode
from schemas.experiment import Experiment, SpecError
from schemas.records import ExperimentSpec
from schemas.topics import EXPERIMENT_NAME, EXPERIMENTS, topic_name

__all__ = [
    "RUN_ID",
    "PublishedExperiment",
    "UnknownExperiment",
    "UnreadableExperiment",
    "forget_experiment",
    "in_force",
    "new_run_id",
    "publish_experiment",
    "read_experiment",
    "restore",
    "run_directory",
    "run_started_ms",
]

_SHOWN_NAMES = 20
_STAMP = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")


class UnknownExperiment(RollstreamError):
    """No spec of that name was ever published, or it was deleted."""


class UnreadableExperiment(RollstreamError):
    """No spec of that name is in force: all that there are were refused.

    Attributes:
        offset: of the newest record.
    """

    def __init__(self, name: str, offset: int, cause: str) -> None:
        super().__init__(
            f"experiment {name}: its newest spec, at offset {offset}, cannot be read: "
            f"{cause}",
            "`rollstream run FILE --fresh` or `rollstream launch FILE --fresh` "
            "replaces it, `rollstream delete` removes it",
        )
        self.offset = offset


def read_experiment(
    settings: Settings, name: str, offset: int | None = None
) -> PublishedExperiment:
    """Return the spec in force of an experiment.

    Args:
        settings: where it is.
        name: the experiment's.
        offset: return the spec of that very record, if it is still there and can be
            read; else the one in force.

    Raises:
        UnknownExperiment: there is none.
        UnreadableExperiment: all that there are were refused.
    """
    desired, names = Desired(), set()
    for message in _specs(settings):
        if message.key == name:
            desired.apply(message)
            if message.offset == offset:
                alone = Desired()
                alone.apply(message)
                if (wanted := alone.of(name).accepted) is not None:
                    return wanted
        elif message.tombstone:
            names.discard(message.key)
        else:
            names.add(message.key)
    return in_force(name, desired.of(name), names)


def _specs(settings: Settings) -> Iterator[Message]:
    """Yield what was ever launched: nothing where nobody has made the topic yet."""
    topic = topic_name(EXPERIMENTS)
    try:
        yield from read_to_end(settings, topic)
    except TopicError:
        if find_topic(make_admin(settings, "experiments"), topic) is not None:
            raise


def in_force(
    name: str, entry: Entry, others: set[str] | None = None
) -> PublishedExperiment:
    """Return the accepted spec of an entry; raises as ``read_experiment`` does.

    ``others``: names that there are; None: not known.
    """
    if entry.accepted is not None:
        return entry.accepted
    if entry.refused is not None and not entry.deleted:
        raise UnreadableExperiment(name, entry.refused.offset, entry.refused.reason)
    raise UnknownExperiment(
        f"experiment: expected {_one_of(others)}, found {name!r}",
        "publish it with `rollstream launch FILE` or `rollstream run FILE`",
    )


def _one_of(others: set[str] | None) -> str:
    if others is None:
        return "one that `rollstream ps` lists"
    # What is no name may hold anything, and goes to a terminal.
    names = sorted(filter(EXPERIMENT_NAME.fullmatch, others))
    if not names:
        return "one that was published, of which there is none yet"
    more, shown = len(names) - _SHOWN_NAMES, ", ".join(names[:_SHOWN_NAMES])
    return f"one of {shown}" + (f" and {more} more" if more > 0 else "")


def publish_experiment(
    sender: Sender,
    experiment: Experiment,
    run_id: str,
    replaces: int,
    managed_by: str = "run",
) -> PublishedExperiment:
    """Publish a spec and return it with its offset; accepted or not, the log says.

    Raises:
        SpecError: it is too large to be accepted.
        DeliveryError: it cannot be delivered.
    """
    record = ExperimentSpec(
        experiment=experiment.name,
        run_id=run_id,
        spec=experiment.to_json(),
        replaces=replaces,
        created_at_ms=now_ms(),
        managed_by=managed_by,
    )
    value = encode(record)
    if len(value) > MAX_RECORD_BYTES:
        raise SpecError(
            [f"spec: expected at most {MAX_RECORD_BYTES} bytes, found {len(value)}"]
        )
    offset = sender.send_and_wait(topic_name(EXPERIMENTS), value, experiment.name)
    return PublishedExperiment(experiment, run_id, offset, managed_by)


def restore(sender: Sender, name: str, entry: Entry) -> int | None:
    """Publish what is in force again, where the newest record of its key is refused.

    Compaction keeps the newest record only: it must not be a refused one.

    Returns:
        the offset of what was published; None: nothing was.
    """
    known = entry.accepted
    if entry.refused is None:
        return None
    if known is not None:
        # Not the offset in force: that record may be gone where this one is read.
        return publish_experiment(
            sender,
            known.experiment,
            known.run_id,
            entry.newest_offset,
            known.managed_by,
        ).offset
    return forget_experiment(sender, name) if entry.deleted else None


def forget_experiment(sender: Sender, name: str) -> int:
    """Publish that there is no such experiment any more; return the offset."""
    return sender.send_and_wait(topic_name(EXPERIMENTS), None, name)


def run_directory(settings: Settings, name: str, run_id: str) -> Path:
    """Return where checkpoints, logs and the learning curve of a run lie."""
    return settings.data_dir / "experiments" / name / run_id


def new_run_id() -> str:
    """Return an id that sorts by time: UTC seconds and a random tail."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + secrets.token_hex(3)


def run_started_ms(run_id: str) -> int | None:
    """Return when ``new_run_id`` made an id; None: it did not."""
    if not _STAMP.fullmatch(run_id):
        return None
    try:
        return timegm(time.strptime(run_id[:15], "%Y%m%dT%H%M%S")) * 1000
    except ValueError:
        return None
