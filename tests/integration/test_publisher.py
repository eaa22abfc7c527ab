import hashlib
import secrets

import numpy as np
import pytest
import torch

from infra.control.members import experiment_topics
from infra.control.role import RoleContext
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import latest_by_key, read_to_end
from infra.kafka.topic_admin import ensure_topics
from learner import publisher as publisher_module
from learner.actor_graph import export_actor
from learner.algorithms import build
from learner.publisher import Publisher
from learner.roster import NewerLearner
from producers.policy import open_graph
from schemas.codec import decode, decode_any, encode
from schemas.experiment import from_values
from schemas.records import PolicyChunk, PolicyGraph, PolicyVersion
from schemas.topics import POLICIES, POLICY_HISTORY
from tests.unit.learner_specs import environment

pytestmark = pytest.mark.kafka
LATER_S = 100.0


@pytest.fixture(scope="module")
def algorithm():
    return build(environment(), make_experiment().spec)


@pytest.fixture(scope="module")
def graph(algorithm):
    return export_actor(algorithm.actor())


def make_experiment():
    learner = {
        "network": {"hidden": [8]},
        "publishEveryUpdates": 16,
        "publishIntervalMs": 200,
    }
    return from_values(
        {
            "apiVersion": "rollstream/v1",
            "kind": "Experiment",
            "metadata": {"name": f"publisher-{secrets.token_hex(4)}"},
            "spec": {"env": {"id": "CartPole-v1"}, "learner": learner},
        }
    )


class Policies:
    """The policies topic of an experiment of its own."""

    def __init__(self, settings):
        self.settings = settings
        self.experiment = make_experiment()
        self.sender = Sender(make_producer(settings, client_id="publisher-test"))
        self.topic = self.context().topic(POLICIES)
        used = self.topic, self.context().topic(POLICY_HISTORY)
        topics = experiment_topics(self.experiment)
        ensure_topics(settings, [topic for topic in topics if topic.name in used])

    def context(self, run_id="run"):
        return RoleContext(self.settings, self.experiment, run_id, "learner", 0, -1)

    def publisher(self, epoch=1, run_id="run", **more):
        return Publisher(self.sender, self.context(run_id), epoch, **more)

    def records(self, topic=None):
        assert self.sender.flush(60) == 0
        return [
            (m.offset, m.key, decode_any(m.value))
            for m in read_to_end(self.settings, topic or self.topic)
        ]

    def latest(self):
        assert self.sender.flush(60) == 0
        return latest_by_key(self.settings, self.topic)


@pytest.fixture
def policies(settings):
    return Policies(settings)


def weights(value, count=3):
    return {"w": np.full(count, value, np.float32)}


def test_what_a_worker_reads_acts_as_the_network_does(policies, algorithm, graph):
    publisher = policies.publisher()
    offset = publisher.publish_graph(graph)
    assert publisher.publish(algorithm.policy_tensors(), 7, LATER_S) == 0
    latest = policies.latest()
    record = decode(latest["graph"].value, PolicyGraph)
    version = decode(latest["policy"].value, PolicyVersion)
    assert latest["graph"].offset == offset == version.graph_offset
    assert (version.epoch, version.version, version.train_step) == (1, 0, 7)
    session = open_graph(record, environment())
    params = session.load(version, version.tensors)
    observations = {"": np.random.default_rng(0).normal(size=(5, 4)).astype("<f4")}
    found = session.bind(params).run(observations, {})["q"]
    with torch.no_grad():
        inputs = {"": torch.from_numpy(observations[""])}
        expected = algorithm.actor().module(inputs)["q"].numpy()
    assert found == pytest.approx(expected, abs=1e-5)


def test_versions_go_on_over_restarts_and_never_repeat(policies, graph):
    first = policies.publisher(epoch=1)
    assert first.version == -1
    first.publish_graph(graph)
    assert [first.publish(weights(i), i, LATER_S) for i in range(3)] == [0, 1, 2]
    assert policies.sender.flush(60) == 0
    # Its checkpoint is older than what it published, then newer.
    assert policies.publisher(epoch=2, first_version=1).version == 2
    assert policies.publisher(epoch=2, first_version=9).version == 8


def test_policies_of_another_run_are_none_of_ours(policies, graph):
    other = policies.publisher(epoch=99, run_id="before", first_version=50)
    other.publish_graph(graph)
    other.publish(weights(1), 1, LATER_S)
    assert policies.sender.flush(60) == 0
    ours = policies.publisher(epoch=1)
    assert ours.version == -1
    other.publish(weights(2), 2, LATER_S)
    assert policies.sender.flush(60) == 0
    assert policies.publisher(epoch=2).version == -1


def test_learner_that_is_superseded_is_told(policies, graph):
    new = policies.publisher(epoch=6)
    new.publish_graph(graph)
    with pytest.raises(NewerLearner, match="of the learner 6; this one is 5"):
        policies.publisher(epoch=5)


def test_what_cannot_be_read_is_passed_over(policies, graph):
    policies.sender.send_and_wait(policies.topic, b"\xffgarbage", "best", 0)
    assert policies.publisher().version == -1


def test_best_of_the_evaluator_does_not_disturb(policies, graph):
    publisher = policies.publisher(epoch=3)
    publisher.publish_graph(graph)
    publisher.publish(weights(1), 1, LATER_S)
    best = decode(policies.latest()["policy"].value, PolicyVersion)
    policies.sender.send_and_wait(policies.topic, encode(best), "best", 0)
    assert publisher.publish(weights(2), 2, LATER_S) == 1


def assembled(latest):
    version = decode(latest["policy"].value, PolicyVersion)
    chunks = [
        decode(latest[f"chunk/{version.slot}/{i}"].value, PolicyChunk)
        for i in range(version.num_chunks)
    ]
    assert {(c.epoch, c.version) for c in chunks} == {(version.epoch, version.version)}
    return version, b"".join(chunk.data for chunk in chunks)


def test_large_policies_travel_in_chunks(policies, graph):
    publisher = policies.publisher()
    publisher.publish_graph(graph)
    publisher.publish(weights(1.5, count=5_000_000), 1, LATER_S)  # 20 MB
    version, data = assembled(policies.latest())
    assert version.num_chunks == 3 and version.tensors == b""
    assert hashlib.sha256(data).hexdigest() == version.tensors_sha256


def test_chunks_alternate_between_slots_with_the_manifest_last(
    policies, graph, monkeypatch
):
    monkeypatch.setattr(publisher_module, "POLICY_CHUNK_BYTES", 1000)
    publisher = policies.publisher()
    publisher.publish_graph(graph)
    for value in range(3):
        publisher.publish(weights(value, count=400), value, LATER_S)
    keys = [key for _, key, _ in policies.records()]
    expected = [[f"chunk/{slot}/0", f"chunk/{slot}/1", "policy"] for slot in (0, 1, 0)]
    assert keys == ["graph", *sum(expected, [])]
    latest = policies.latest()
    assembled(latest)
    # Whoever still reads version 1 finds its chunks whole.
    assert decode(latest["chunk/1/1"].value, PolicyChunk).version == 1


def test_every_so_manieth_version_is_kept_in_the_history(policies, graph):
    publisher = policies.publisher(first_version=24)
    publisher.publish_graph(graph)
    for value in range(27):
        publisher.publish(weights(value), value, LATER_S)
    topic = policies.context().topic(POLICY_HISTORY)
    kept = [(key, record.version) for _, key, record in policies.records(topic)]
    assert kept == [("25", 25), ("50", 50)]


@pytest.mark.parametrize(
    ("updates", "later_ms", "due"),
    [
        (116, 200, True),
        (115, 200, False),  # too few updates
        (116, 199, False),  # too early
        (500, 5000, True),
    ],
)
def test_publication_is_limited_by_updates_and_by_time(
    policies, graph, updates, later_ms, due
):
    publisher = policies.publisher()
    publisher.publish_graph(graph)
    publisher.publish(weights(0), 100, now_s=LATER_S)
    assert publisher.due(updates, LATER_S + later_ms / 1000 + 1e-6) is due


def test_publishing_before_the_graph_is_refused(policies):
    with pytest.raises(ValueError, match="expected publish_graph before publish"):
        policies.publisher().publish(weights(0), 0, LATER_S)
