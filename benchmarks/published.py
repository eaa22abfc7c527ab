"""An experiment that a benchmark publishes, and takes away again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from infra.control.desired import PublishedExperiment
from infra.control.experiments import (
    forget_experiment,
    new_run_id,
    publish_experiment,
)
from infra.control.members import ensure_experiment_topics
from infra.control.supervisor import Supervisor
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.topic_admin import delete_topics
from infra.settings import Settings
from schemas.experiment import Experiment
from schemas.topics import TOPICS, topic_name


def bench_sender(settings: Settings) -> Sender:
    """Return what benchmarks publish with."""
    return Sender(make_producer(settings, client_id="bench"))


@contextmanager
def published(
    settings: Settings, experiment: Experiment
) -> Iterator[PublishedExperiment]:
    """Make its topics and publish it; at the end forget it, and delete them."""
    with ExitStack() as closing:
        ensure_experiment_topics(settings, experiment)
        closing.callback(delete_experiment_topics, settings, experiment.name)
        sender = bench_sender(settings)
        found = publish_experiment(sender, experiment, new_run_id(), -1)
        closing.callback(forget_experiment, sender, experiment.name)
        yield found


@contextmanager
def supervised(
    settings: Settings, experiment: Experiment
) -> Iterator[tuple[Supervisor, PublishedExperiment]]:
    """Publish it, and yield what starts its roles, whose logs nobody keeps."""
    with (
        published(settings, experiment) as found,
        tempfile.TemporaryDirectory() as logs,
    ):
        supervisor = Supervisor(settings, experiment.name, Path(logs))
        try:
            yield supervisor, found
        finally:
            supervisor.stop()


def delete_experiment_topics(settings: Settings, name: str) -> None:
    """Delete what was measured with."""
    delete_topics(settings, [topic_name(t, name) for t in TOPICS if t.per_experiment])
