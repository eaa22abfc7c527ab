"""The topic of lineage of an experiment, and the run in force -> what they say."""

from __future__ import annotations

from archive.lineage import Ask, Told
from infra.control.desired import SpecFollower
from infra.kafka.clients import make_admin
from infra.kafka.reading import latest_by_key
from infra.kafka.topic_description import topic_exists
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.records import ReplayProgress, TrainedOn
from schemas.topics import EXPERIMENT_NAME, LINEAGE, topic_name


def ask_topics(settings: Settings) -> Ask:
    """Return what answers with what the log says; nothing of what was deleted.

    The answer raises KafkaUnavailable when the brokers do not.
    """
    specs = SpecFollower(settings)
    try:
        specs.read_to_end()
        desired = specs.desired
    finally:
        specs.close()
    admin = make_admin(settings, "lineage")

    def ask(experiment: str) -> Told:
        # It may come from a record, which may say anything.
        if not EXPERIMENT_NAME.fullmatch(experiment):
            return Told(experiment, None)
        accepted = desired.of(experiment).accepted
        run_id = accepted.run_id if accepted is not None else None
        topic = topic_name(LINEAGE, experiment)
        if not topic_exists(admin, topic):
            return Told(experiment, run_id)
        records = [
            decode_or_none(message.value, TrainedOn, ReplayProgress)
            for message in latest_by_key(settings, topic).values()
        ]
        return Told(
            experiment,
            run_id,
            tuple(each for each in records if isinstance(each, TrainedOn)),
            tuple(each for each in records if isinstance(each, ReplayProgress)),
        )

    return ask
