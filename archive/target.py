"""The experiment that a past is replayed into: may it be, and what is in it already."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from confluent_kafka import KafkaException

from archive.progress_log import OtherReplay, Past, Standing, read_standing
from archive.streams import SentStreams
from infra.control.desired import PublishedExperiment
from infra.errors import KafkaUnavailable
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import (
    committed_offsets,
    latest_by_key,
    partitions_of,
    read_to_end,
    watermarks,
)
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.records import Member, StreamEnd, Unroll
from schemas.topics import MEMBERS, TRAJECTORIES, group_name, topic_name


def check_target(
    settings: Settings, target: PublishedExperiment, past: Past
) -> Standing | None:
    """Return how far the past is in a target already; None: not at all.

    Raises:
        OtherReplay: something else is in it, or will be.
    """
    name = target.experiment.name
    if (past.experiment, past.run_id) == (name, target.run_id):
        raise OtherReplay(
            f"experiment {name}: expected the past of another run, found its own",
            "replay into an experiment of another name",
        )
    workers = target.experiment.spec.workers.most_replicas
    mend = "replay into an experiment of another name, and learn with learner.sources"
    if workers:
        raise OtherReplay(
            f"experiment {name}: expected workers.replicas 0, found {workers}: their "
            "streams would be taken for those of the past",
            mend,
        )
    for message in latest_by_key(settings, topic_name(MEMBERS, name)).values():
        member = decode_or_none(message.value, Member)
        if member and member.role == "worker" and member.run_id == target.run_id:
            raise OtherReplay(
                f"experiment {name}: expected no worker in run {target.run_id}, found "
                f"worker/{member.index}: its streams would be taken for those of the "
                "past",
                mend,
            )
    return read_standing(settings, name, target.run_id, past)


def read_unfinished(
    settings: Settings, target: PublishedExperiment
) -> tuple[SentStreams, dict[int, int]]:
    """Return what processors may hold back, and where each partition's records end.

    What they have acknowledged is closed, or has what it waits for: the tail of an open
    stream is never acknowledged, unless n is 1, and then it waits for nothing.
    """
    name = target.experiment.name
    topic = topic_name(TRAJECTORIES, name)
    consumer = make_consumer(
        settings,
        group=group_name(name, "processor"),
        client_id=f"{name}-unfinished",
        traffic=Traffic.CONTROL,
    )
    with closing(consumer):
        partitions = partitions_of(consumer, topic)
        try:
            committed = committed_offsets(consumer, topic, partitions)
        except KafkaException as exc:
            raise KafkaUnavailable(
                f"what processors of {name} have read cannot be had: {exc}",
                "check that the brokers answer",
            ) from exc
        firsts = {p: watermarks(consumer, topic, p)[0] for p in partitions}
    streams, ends = SentStreams(), {}
    for partition in partitions:
        start = max(firsts[partition], committed[partition])
        for message in read_to_end(settings, topic, partition, start):
            record: Any = decode_or_none(message.value, Unroll, StreamEnd)
            if record is not None and record.run_id == target.run_id:
                streams.take(record)
                ends[partition] = message.offset + 1
    return streams, ends
