"""The topic of experiments: publish a spec, read the newest."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from infra.clock import now_ms
from infra.errors import RollstreamError
from infra.kafka.delivery import Sender
from infra.kafka.reading import Message, latest_by_key
from infra.settings import Settings
from schemas.codec import decode, encode
from schemas.errors import SchemaError
from schemas.experiment import Experiment, SpecError, parse_json
from schemas.records import ExperimentSpec
from schemas.topics import EXPERIMENTS, topic_name

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


class UnknownExperiment(RollstreamError):
    """No spec of that name was ever published, or it was deleted."""


class UnreadableExperiment(RollstreamError):
    """The newest spec of that name cannot be read; ``offset`` is its record's."""

    def __init__(self, name: str, offset: int, cause: Exception) -> None:
        super().__init__(
            f"experiment {name}: its newest spec, at offset {offset}, cannot be read: "
            f"{cause}",
            "`rollstream run FILE --fresh` replaces it",
        )
        self.offset = offset


@dataclass(frozen=True)
class PublishedExperiment:
    """A spec in the topic.

    Attributes:
        experiment: what it says.
        run_id: the run it belongs to.
        offset: of its record.
    """

    experiment: Experiment
    run_id: str
    offset: int


def read_experiment(settings: Settings, name: str) -> PublishedExperiment:
    """Return the newest spec of an experiment.

    Raises:
        UnknownExperiment: there is none.
        UnreadableExperiment: it is of another version, or not ours.
    """
    messages = latest_by_key(settings, topic_name(EXPERIMENTS))
    message = messages.get(name)
    if message is None:
        raise UnknownExperiment(
            f"experiment: expected one of {', '.join(sorted(messages)) or 'none yet'}, "
            f"found {name!r}",
            "publish it with `rollstream run FILE`",
        )
    try:
        return _published(name, message)
    except (SchemaError, SpecError, ValueError) as exc:
        raise UnreadableExperiment(name, message.offset, exc) from exc


def _published(name: str, message: Message) -> PublishedExperiment:
    record = decode(message.value, ExperimentSpec)
    experiment = parse_json(record.spec)
    if experiment.name != name:
        raise ValueError(f"expected the name {name!r}, found {experiment.name!r}")
    # It becomes part of a path.
    if not RUN_ID.fullmatch(record.run_id):
        raise ValueError(f"expected a run id, found {record.run_id[:80]!r}")
    return PublishedExperiment(experiment, record.run_id, message.offset)


def publish_experiment(
    sender: Sender, experiment: Experiment, run_id: str, replaces: int
) -> PublishedExperiment:
    """Publish a spec and return it with its offset."""
    record = ExperimentSpec(
        experiment=experiment.name,
        run_id=run_id,
        spec=experiment.to_json(),
        replaces=replaces,
        created_at_ms=now_ms(),
    )
    offset = sender.send_and_wait(
        topic_name(EXPERIMENTS), encode(record), experiment.name
    )
    return PublishedExperiment(experiment, run_id, offset)


def forget_experiment(sender: Sender, name: str) -> None:
    """Publish that there is no such experiment any more."""
    sender.send_and_wait(topic_name(EXPERIMENTS), None, name)


def run_directory(settings: Settings, name: str, run_id: str) -> Path:
    """Return where checkpoints, logs and the learning curve of a run lie."""
    return settings.data_dir / "experiments" / name / run_id


def new_run_id() -> str:
    """Return an id that sorts by time: UTC seconds and a random tail."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + secrets.token_hex(3)
