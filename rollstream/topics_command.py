"""``rollstream topics``: the map of topics beside what the broker has."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.table import Table

from infra.control.experiments import read_experiment
from infra.control.members import experiment_topics, shared_topics
from infra.kafka.topic_admin import TopicConfig, TopicDescription, describe_topics
from infra.settings import Settings
from rollstream.tables import table_console
from schemas.topics import TOPICS, topic_name

PIPE_WIDTH = 160


def topics(
    settings: Settings, experiment: str | None, *, to_print: bool, as_json: bool
) -> None:
    """Show the topics; or print how to create them."""
    wanted = shared_topics()
    if experiment is not None:
        wanted = experiment_topics(read_experiment(settings, experiment).experiment)
    if to_print:
        print("\n".join(map(creation_command, wanted)))
        return
    found = {
        topic.name: topic
        for topic in describe_topics(settings, [topic.name for topic in wanted])
    }
    if as_json:
        print(json.dumps([_row(topic, found.get(topic.name)) for topic in wanted]))
        return
    _show(wanted, found, experiment)


def creation_command(topic: TopicConfig) -> str:
    """Return what an administrator runs to create a topic."""
    config = "".join(
        f" --config {key}={value}" for key, value in sorted(topic.config.items())
    )
    return (
        "kafka-topics.sh --bootstrap-server $BROKER --create --if-not-exists "
        f"--topic {topic.name} --partitions {topic.partitions}{config}"
    )


def _row(topic: TopicConfig, found: TopicDescription | None) -> dict[str, object]:
    return {
        "topic": topic.name,
        "wanted": {"partitions": topic.partitions, "config": dict(topic.config)},
        "found": asdict(found) if found else None,
    }


def _show(
    wanted: list[TopicConfig],
    found: dict[str, TopicDescription],
    experiment: str | None,
) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("TOPIC", no_wrap=True)
    for column in ("KEY", "RECORDS", "CLEANUP", "PARTITIONS", "HELD"):
        table.add_column(column, overflow="fold")
    declared = {
        topic_name(topic, experiment if topic.per_experiment else None): topic
        for topic in TOPICS
        if experiment or not topic.per_experiment
    }
    for topic in wanted:
        entry, there = declared[topic.name], found.get(topic.name)
        held = "missing"
        if there is not None:
            spans = zip(there.beginning_offsets, there.end_offsets, strict=True)
            held = f"{sum(end - begin for begin, end in spans):,}"
        partitions = str(topic.partitions)
        if there is not None and there.partitions != topic.partitions:
            partitions += f", found {there.partitions}"
        table.add_row(
            topic.name,
            entry.key,
            ", ".join(entry.records),
            entry.cleanup,
            partitions,
            held,
        )
    table_console(PIPE_WIDTH).print(table)
