"""The topic of experiments: publish a spec, read the newest."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from infra.errors import RollstreamError
from infra.kafka.delivery import Sender
from infra.kafka.reading import latest_by_key
from infra.settings import Settings
from schemas.codec import decode, encode
from schemas.experiment import Experiment, parse_json
from schemas.records import ExperimentSpec
from schemas.topics import EXPERIMENTS, topic_name


class UnknownExperiment(RollstreamError):
    """No spec of that name was ever published, or it was deleted."""


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


def read_experiments(settings: Settings) -> dict[str, PublishedExperiment]:
    """Return the newest spec of every experiment; raises SpecError, SchemaError."""
    messages = latest_by_key(settings, topic_name(EXPERIMENTS))
    found = {}
    for key, message in messages.items():
        record = decode(message.value, ExperimentSpec)
        found[key] = PublishedExperiment(
            parse_json(record.spec), record.run_id, message.offset
        )
    return found


def read_experiment(settings: Settings, name: str) -> PublishedExperiment:
    """Return the newest spec of an experiment.

    Raises:
        UnknownExperiment: there is none.
    """
    found = read_experiments(settings)
    if name not in found:
        raise UnknownExperiment(
            f"experiment: expected one of {', '.join(sorted(found)) or 'none yet'}, "
            f"found {name!r}",
            "publish it with `rollstream run FILE`",
        )
    return found[name]


def publish_experiment(
    sender: Sender, experiment: Experiment, run_id: str, replaces: int
) -> PublishedExperiment:
    """Publish a spec and return it with its offset."""
    record = ExperimentSpec(
        experiment=experiment.name,
        run_id=run_id,
        spec=experiment.to_json(),
        replaces=replaces,
        created_at_ms=time.time_ns() // 1_000_000,
    )
    offset = sender.send_and_wait(
        topic_name(EXPERIMENTS), encode(record), experiment.name
    )
    return PublishedExperiment(experiment, run_id, offset)


def new_run_id() -> str:
    """Return an id that sorts by time: UTC seconds and a random tail."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + secrets.token_hex(3)
