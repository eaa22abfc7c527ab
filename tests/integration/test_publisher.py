import secrets
from contextlib import closing

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from infra.control.members import experiment_topics
from infra.control.role import RoleContext
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import latest_by_key, read_to_end
from infra.kafka.topic_admin import ensure_topics
from infra.policies import chunks as chunks_module
from infra.policies.chunks import ChunkReader
from learner import publisher as publisher_module
from learner.actor_graph import export_actor
from learner.algorithms import build
from learner.publisher import Publisher
from learner.roster import NewerLearner
from producers.policy import open_graph
from schemas.codec import decode, decode_any, encode
from schemas.experiment import from_values
from schemas.records import PolicyChunk, PolicyGraph, PolicyVersion
from schemas.topics import POLICIES, POLICY_CHUNKS, POLICY_HISTORY
from tests.unit.envs.trial import until
from tests.unit.learner_specs import environment

pytestmark = pytest.mark.kafka
LATER_S = 100.0
_USED = POLICIES, POLICY_CHUNKS, POLICY_HISTORY


@pytest.fixture(scope="module")
def algorithm():
    return build(environment(), make_experiment().spec)


@pytest.fixture(scope="module")
def graph(algorithm):
    return export_actor(algorithm.actor())


def make_experiment(**more):
    learner = {
        "network": {"hidden": [8]},
        "publishEveryUpdates": 16,
        "publishIntervalMs": 200,
        **more,
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

    def __init__(self, settings, **learner):
        self.settings = settings
        self.experiment = make_experiment(**learner)
        self.sender = Sender(make_producer(settings, client_id="publisher-test"))
        self.topic = self.context().topic(POLICIES)
        used = [self.context().topic(each) for each in _USED]
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


def fetched(policies):
    """The newest version, and its tensors as they are read by their address."""
    version = decode(policies.latest()["policy"].value, PolicyVersion)
    with closing(ChunkReader(policies.settings, "publisher-test")) as reader:
        data = reader.read(version)
        assert len(data) == version.tensors_bytes
        assert version.keyframe_sha256 or reader.fetched_bytes == len(data)
    return version, load(data)


def test_large_policies_travel_in_chunks(policies, graph):
    publisher = policies.publisher()
    publisher.publish_graph(graph)
    publisher.publish(weights(1.5, count=5_000_000), 1, LATER_S)  # 20 MB
    publisher.finish(60)
    version, found = fetched(policies)
    assert version.num_chunks == 3 and version.tensors == b""
    assert version.num_parameters == 5_000_000
    assert found["w"].tobytes() == weights(1.5, count=5_000_000)["w"].tobytes()


def test_the_record_comes_once_its_chunks_are_in_the_log(policies, graph):
    publisher = policies.publisher()
    publisher.publish_graph(graph)
    assert policies.sender.flush(60) == 0
    publisher.publish(weights(1, count=100_000), 0, LATER_S)
    chunks = policies.context().topic(POLICY_CHUNKS)

    def is_on_its_way():
        if not policies.sender.counts.in_flight:
            publisher.settle()
        return policies.sender.counts.in_flight

    until(is_on_its_way)
    # The report of its delivery waits until somebody looks: nobody does meanwhile.
    until(lambda: policies.records(chunks))
    assert "policy" not in policies.latest()
    assert not publisher.due(10_000, 2 * LATER_S), "one is under way"
    publisher.finish(60)
    assert fetched(policies)[0].version == 0
    assert publisher.due(10_000, 2 * LATER_S)


def test_chunks_alternate_between_slots_away_from_the_records(
    policies, graph, monkeypatch
):
    monkeypatch.setattr(chunks_module, "POLICY_INLINE_BYTES", 1000)
    monkeypatch.setattr(chunks_module, "POLICY_CHUNK_BYTES", 1000)
    publisher = policies.publisher()
    publisher.publish_graph(graph)
    before = []
    for value in range(3):
        publisher.publish(weights(value, count=400), value, LATER_S)
        publisher.finish(60)
        before.append(fetched(policies))
    assert [key for _, key, _ in policies.records()] == ["graph", *["policy"] * 3]
    topic = policies.context().topic(POLICY_CHUNKS)
    keys = [key for _, key, _ in policies.records(topic)]
    assert keys == [f"chunk/{slot}/{i}" for slot in (0, 1, 0) for i in (0, 1)]
    assert [found["w"][0] for _, found in before] == [0, 1, 2]
    # Whoever still reads version 1 finds its chunks whole.
    with closing(ChunkReader(policies.settings, "publisher-test")) as reader:
        assert load(reader.read(before[1][0]))["w"][0] == 1


def test_chunks_of_an_older_release_go_once_there_is_a_version_of_ours(policies, graph):
    for slot in (0, 1, 2):  # the last is of the best, which stays as it is
        chunk = PolicyChunk(policies.experiment.name, "run", 1, 6, slot, 0, b"part")
        key = f"chunk/{slot}/0"
        policies.sender.send_and_wait(policies.topic, encode(chunk), key, 0)
    publisher = policies.publisher()
    publisher.publish_graph(graph)
    assert len(policies.latest()) == 4
    assert publisher.publish(weights(1), 0, LATER_S) == 7
    assert policies.latest().keys() == {"graph", "policy", "chunk/2/0"}


def test_the_history_holds_what_fits_a_record(policies, graph):
    publisher = policies.publisher(first_version=25)
    publisher.publish_graph(graph)
    for value in range(26):
        publisher.publish(weights(value, count=70_000), value, LATER_S)
    publisher.finish(60)
    topic = policies.context().topic(POLICY_HISTORY)
    (_, first, _), (_, second, record) = policies.records(topic)
    assert (first, second) == ("25", "50") and not record.chunk_offsets
    assert load(record.tensors)["w"].tolist() == [25] * 70_000


def test_half_precision_is_half_the_bytes_and_what_workers_load(
    policies, algorithm, graph
):
    policies = Policies(policies.settings, policyPrecision="half")
    publisher = policies.publisher()
    publisher.publish_graph(graph)
    tensors = algorithm.policy_tensors()
    publisher.publish(tensors, 7, LATER_S)
    latest = policies.latest()
    version = decode(latest["policy"].value, PolicyVersion)
    found = load(version.tensors)
    assert {each.dtype for each in found.values()} == {np.dtype("<f2")}
    session = open_graph(decode(latest["graph"].value, PolicyGraph), environment())
    params = session.load(version, version.tensors)
    # The same comparison as before publication, of what really acts.
    rounded = {
        name: torch.from_numpy(each.astype("<f2").astype("<f4"))
        for name, each in tensors.items()
    }
    observations = {"": np.random.default_rng(0).normal(size=(5, 4)).astype("<f4")}
    acted = session.bind(params).run(observations, {})["q"]
    with torch.no_grad():
        inputs = {"": torch.from_numpy(observations[""])}
        expected = torch.func.functional_call(
            algorithm.actor().module, rounded, (inputs,)
        )["q"]
    assert acted == pytest.approx(expected.numpy(), abs=1e-5)


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


def test_deltas_are_small_and_exact_and_begin_anew_with_each_keyframe(
    policies, graph, monkeypatch
):
    monkeypatch.setattr(publisher_module, "KEYFRAME_EVERY", 3)
    policies = Policies(policies.settings, policyEncoding="delta")
    publisher = policies.publisher()
    publisher.publish_graph(graph)
    tensors = {"w": np.random.default_rng(0).normal(size=100_000).astype("<f4")}
    found = []
    for number in range(7):
        tensors["w"][number::50] += 1e-3
        sent = {"w": tensors["w"].copy()}
        publisher.publish(sent, number, LATER_S)
        publisher.finish(60)
        version, read = fetched(policies)
        assert read["w"].tobytes() == sent["w"].tobytes()
        found.append(version)
    assert [bool(each.keyframe_sha256) for each in found] == [0, 1, 1, 0, 1, 1, 0]
    topic = policies.context().topic(POLICY_CHUNKS)
    sent = {offset: (key, record) for offset, key, record in policies.records(topic)}
    keys = [sent[each.chunk_offsets[0]][0] for each in found]
    slots = [key.split("/")[1] for key in keys]
    assert slots == ["4", "1", "0", "5", "0", "1", "4"]
    sizes = [len(sent[each.chunk_offsets[0]][1].data) for each in found]
    assert all(sizes[i] < sizes[0] / 5 for i in (1, 2, 4, 5))
    # A learner that begins anew knows no keyframe: it sends all until the next.
    again = policies.publisher(epoch=2)
    again.publish_graph(graph)
    again.publish({"w": tensors["w"].copy()}, 8, LATER_S)
    again.finish(60)
    version, read = fetched(policies)
    assert version.version == 7 and not version.keyframe_sha256
