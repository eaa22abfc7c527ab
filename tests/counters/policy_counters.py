"""What a version of a policy takes in the log."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from infra.control.members import experiment_topics
from infra.control.role import RoleContext
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.topic_admin import TopicConfig, delete_topics, ensure_topics
from infra.settings import Settings
from learner.actor_graph import ExportedGraph
from learner.algorithms import build
from learner.algorithms.base import Algorithm
from learner.publisher import Publisher
from schemas.experiment import Experiment, from_values
from schemas.topics import POLICIES, POLICY_HISTORY, topic_name
from tests.counters.expectations import Counters
from tests.counters.log_counters import log_bytes
from tests.unit.learner_specs import environment

GROUP = "log, policy of CartPole, MLP 64 x 64"
_TOPICS = (POLICIES, POLICY_HISTORY)


def measure(settings: Settings) -> Counters:
    """Publish as a learner does; return the bytes of a version, once in the history."""
    experiment = _experiment()
    names = [topic_name(topic, experiment.name) for topic in _TOPICS]
    configs = [each for each in experiment_topics(experiment) if each.name in names]
    algorithm = build(environment(), experiment.spec)
    with _topics(settings, configs):
        sender = Sender(make_producer(settings, client_id="counted"))
        publisher = _publisher(settings, experiment, sender, algorithm)
        sizes = []
        for number in range(3):
            publisher.publish(algorithm.policy_tensors(), number, float(number))
            assert sender.flush(60.0) == 0
            sizes.append([log_bytes(settings, name) for name in names])
    return {
        "bytes per version": sizes[2][0] - sizes[1][0],
        # Only each 25th is kept: not the two behind the first.
        "bytes in the history": sizes[2][1],
    }


def _experiment() -> Experiment:
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": f"counted-{secrets.token_hex(4)}"},
            "spec": {
                "env": {"id": "CartPole-v1"},
                "learner": {"network": {"hidden": [64, 64]}},
            },
        }
    )


def _publisher(
    settings: Settings, experiment: Experiment, sender: Sender, algorithm: Algorithm
) -> Publisher:
    context = RoleContext(settings, experiment, "run", "learner", 0, -1)
    publisher = Publisher(sender, context, 1)
    # What the graph is does not matter to the size of a version: no export.
    onnx = b"graph"
    digest = hashlib.sha256(onnx).hexdigest()
    publisher.publish_graph(ExportedGraph(onnx, digest, algorithm.actor(), 0.0))
    return publisher


@contextmanager
def _topics(settings: Settings, configs: list[TopicConfig]) -> Iterator[None]:
    ensure_topics(settings, configs)
    try:
        yield
    finally:
        delete_topics(settings, [config.name for config in configs])
