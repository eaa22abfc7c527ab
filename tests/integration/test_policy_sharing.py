"""Workers of one host fetch a large policy once, whoever of them is killed."""

import hashlib
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from infra.policies.chunks import ChunkReader, addressed, cut
from infra.policies.deltas import delta_of
from infra.policies.download import download
from infra.policies.errors import PolicyDamaged
from infra.policies.host_files import root_of
from infra.policies.shared_chunks import SharedChunks
from infra.policies.topics import read_shelf
from producers.best_policy import BestPolicy, Score
from producers.policy import Policy, open_graph
from producers.validation import try_environment
from schemas.records import MetricsPoint
from schemas.topics import METRICS, POLICIES, POLICY_CHUNKS
from tests.integration.test_worker import FREE, WORKERS
from tests.unit.envs.graphs import RUN_ID, graph_record, linear_q, version_record
from tests.unit.envs.trial import Trial, until

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).parents[2]
PADDING = np.zeros(2_100_000, np.float32)  # with it a version is of two chunks
B = np.zeros(2, np.float32)


class Large:
    """An experiment whose policies are large."""

    def __init__(self, settings):
        self.trial = Trial(settings, workers=WORKERS, flow=FREE)
        self.env = try_environment(self.trial.experiment().spec.env, settings)
        self.graph = graph_record(linear_q(4, 2), self.env, experiment=self.trial.name)
        self.trial.send_policy(self.graph)
        run = hashlib.sha256(f"{self.trial.name}/{RUN_ID}".encode()).hexdigest()
        self.directory = root_of(settings) / run

    def publish(self, number):
        """Publish a version as the learner does; return its record."""
        arrays = {"w": np.full((4, 2), number, np.float32), "b": B, "padding": PADDING}
        version = version_record(self.graph, number, arrays, slot=number % 2)
        data = version.tensors
        chunks = cut(version, data)
        assert len(chunks) == 2
        offsets = [
            self.trial.send(POLICY_CHUNKS, each, f"chunk/{each.slot}/{each.chunk}")
            for each in chunks
        ]
        record = addressed(version, data, tuple(offsets))
        self.trial.send(POLICIES, record, "policy")
        return record

    def newest(self):
        """By worker, the newest of its figures."""
        found = {}
        for record in self.trial.records(METRICS):
            if isinstance(record, MetricsPoint) and record.values:
                found[record.index] = record.values
        return found

    def all_act_with(self, version, workers):
        found = [values["policy_version"] for values in self.newest().values()]
        return found == [version] * workers

    def fetched_bytes(self):
        return sum(each["policy_fetched_bytes"] for each in self.newest().values())


@pytest.fixture
def large(settings):
    made = Large(settings)
    yield made
    made.trial.close()


def test_four_workers_fetch_each_version_once(large):
    size = large.publish(0).tensors_bytes
    workers = [large.trial.start(index=i) for i in range(4)]
    until(lambda: large.all_act_with(0, 4), by=workers[0])
    assert large.fetched_bytes() == size
    for number in (1, 2, 3, 4):
        large.publish(number)
        until(lambda number=number: large.all_act_with(number, 4), by=workers[0])
    assert large.fetched_bytes() == 5 * size
    names = {path.name for path in large.directory.iterdir()}
    assert len(names - {"lock", "users"}) == 3, "older ones are removed"
    assert [worker.stop() for worker in workers] == [0] * 4
    assert not large.directory.exists(), "who leaves last takes all along"


HOLDER = """
import sys, time
from infra.kafka.reading import latest_by_key
from infra.policies.shared_chunks import SharedChunks
from infra.policies.topics import read_shelf
from infra.settings import load_settings
from schemas.codec import decode
from schemas.records import PolicyVersion
settings = load_settings()
message = latest_by_key(settings, sys.argv[1])["policy"]
chunks = SharedChunks(settings, sys.argv[2], "holder")
decode_chunk = chunks.reader._decode
def fetched(raw, version):
    print("has fetched one of two", flush=True)
    time.sleep(600)
chunks.reader._decode = fetched
chunks.read(decode(message.value, PolicyVersion))
"""


def test_when_who_fetches_is_killed_another_does(large):
    record = large.publish(0)
    topic = large.trial.context().topic(POLICIES)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, topic, f"{large.trial.name}/{RUN_ID}"],
        stdout=subprocess.PIPE, cwd=ROOT, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout.readline() == "has fetched one of two\n"
        workers = [large.trial.start(index=i) for i in range(2)]
        # They act at random until it is there; none fetches while another does.
        until(lambda: len(large.newest()) == 2, by=workers[0])
        assert large.all_act_with(-1, 2) and large.fetched_bytes() == 0
        holder.send_signal(signal.SIGKILL)
        until(lambda: large.all_act_with(0, 2), by=workers[0])
        assert large.fetched_bytes() == record.tensors_bytes
    finally:
        holder.kill()
        holder.communicate()


def test_a_file_that_was_changed_is_fetched_again(large, settings):
    record = large.publish(0)
    one = SharedChunks(settings, f"{large.trial.name}/{RUN_ID}", "one")
    data = one.read(record)
    path = large.directory / record.tensors_sha256
    path.write_bytes(b"\x00" * len(data))
    assert one.read(record) == data == path.read_bytes()
    assert one.reader.fetched_bytes == 2 * len(data)
    assert one.read(record) == data
    assert one.reader.fetched_bytes == 2 * len(data)
    one.close()


def test_without_a_directory_of_its_own_each_fetches(large, settings, monkeypatch):
    record = large.publish(0)
    monkeypatch.setattr("infra.policies.host_files.root_of", lambda settings: ROOT)
    one = SharedChunks(settings, f"{large.trial.name}/{RUN_ID}", "one")
    for times in (1, 2):
        assert hashlib.sha256(one.read(record)).hexdigest() == record.tensors_sha256
        assert one.reader.fetched_bytes == times * record.tensors_bytes
    one.close()


def test_chunks_of_another_version_are_never_taken_for_it(large, settings):
    first, second = large.publish(0), large.publish(1)
    mixed = replace(first, chunk_offsets=second.chunk_offsets)
    one = SharedChunks(settings, f"{large.trial.name}/{RUN_ID}", "one")
    with pytest.raises(PolicyDamaged, match="found others"):
        one.read(mixed)
    assert not (large.directory / first.tensors_sha256).exists()
    one.close()


def test_the_best_stays_when_the_learner_has_overwritten_its_chunks(large, settings):
    t = large.trial
    best = BestPolicy(t.context("evaluator"), t.sender, lambda kind, reason: None)
    best.recall()
    for number in range(3):
        record = large.publish(number)
        with closing(ChunkReader(settings, "evaluator")) as reader:
            tensors = reader.read(record)
        policy = Policy(open_graph(large.graph, large.env), record, tensors, {})
        assert best.offer(policy, Score(False, 10.0 if number == 0 else 5.0)) is (
            number == 0
        )
    _, shelf = read_shelf(settings, t.name)
    found = {kept.version.version: kept for kept in shelf.versions()}
    assert found.keys() == {0, 2}
    assert found[0].is_best and found[0].version.slot == 2
    whole = download(settings, found[0]).version
    assert load(whole.tensors)["w"].tolist() == np.zeros((4, 2)).tolist()
    assert download(settings, found[2]).version.num_chunks == 0


def test_of_a_delta_only_what_differs_is_fetched(large, settings):
    keyframe = large.publish(0)
    one = SharedChunks(settings, f"{large.trial.name}/{RUN_ID}", "one")
    base = one.read(keyframe)
    changed = bytearray(base)
    changed[-4:] = b"\x01\x02\x03\x04"
    delta = delta_of(bytes(changed), base)
    chunk = cut(replace(keyframe, version=1), delta, at_least=0)[0]
    offset = large.trial.send(POLICY_CHUNKS, chunk, "chunk/1/0")
    made = replace(
        keyframe,
        version=1,
        num_chunks=1,
        chunk_offsets=(offset,),
        tensors_sha256=hashlib.sha256(changed).hexdigest(),
        keyframe_offsets=keyframe.chunk_offsets,
        keyframe_sha256=keyframe.tensors_sha256,
    )
    before = one.reader.fetched_bytes
    assert one.read(made) == changed
    assert one.reader.fetched_bytes - before == len(delta) < 10_000
    # Who begins with it needs the keyframe too; here its file is there.
    other = SharedChunks(settings, f"{large.trial.name}/{RUN_ID}", "other")
    assert other.read(made) == changed and other.reader.fetched_bytes == 0
    for path in large.directory.glob("[0-9a-f]*"):
        path.unlink()
    assert other.read(made) == changed
    assert other.reader.fetched_bytes == keyframe.tensors_bytes + len(delta)
    one.close()
    other.close()
