import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.control.members import experiment_topics
from schemas import records
from schemas.experiment import load_file
from schemas.topics import (
    EXPERIMENT_NAME,
    TOPICS,
    TRAJECTORIES,
    check_name,
    group_name,
    topic_config,
    topic_name,
    worker_index,
    worker_name,
    worker_partition,
)
from tests.unit.test_experiment import SAMPLE

# Names of our own topics and roles among them.
NAMES = st.sampled_from(
    sorted({t.suffix for t in TOPICS} | {"processor", "learner", "rollstream"})
) | st.from_regex(EXPERIMENT_NAME, fullmatch=True)


def test_the_map_names_records_that_exist_and_each_topic_once():
    assert len({topic.suffix for topic in TOPICS}) == len(TOPICS)
    for topic in TOPICS:
        assert topic.written_by and topic.read_by
        for name in topic.records:
            assert name == "schema text" or hasattr(records, name)
        config = topic_config(topic)
        assert config["cleanup.policy"] == topic.cleanup
        assert config["message.timestamp.type"] == "LogAppendTime"


@given(NAMES, NAMES)
def test_no_name_makes_a_topic_that_is_another_ones(one, other):
    """Hence no name is reserved: `status` and `w0-replay` are names like others."""
    if one == other:
        return
    shared = [topic_name(t) for t in TOPICS if not t.per_experiment]
    mine, theirs = (
        [topic_name(t, name) for t in TOPICS if t.per_experiment]
        + [group_name(name, role) for role in ("processor", "learner")]
        for name in (one, other)
    )
    # Kafka's metrics write "." as "_": topics that differ in that only collide.
    found = [name.replace(".", "_") for name in (*shared, *mine, *theirs)]
    assert len(set(found)) == len(found)
    assert max(map(len, found)) <= 249


def test_one_prefix_covers_an_experiment():
    names = [topic_name(t, "a-b") for t in TOPICS if t.per_experiment]
    names += [group_name("a-b", role) for role in ("processor", "learner")]
    assert all(name.startswith("rollstream.a-b.") for name in names)


def test_no_two_experiments_share_a_group():
    names = ["a", "b", "a-b", "a-processor", "processor", "learner"]
    groups = [group_name(n, role) for n in names for role in ("processor", "learner")]
    assert len(set(groups)) == len(groups)
    longest = max(
        (topic_name(t, "x" * 63) for t in TOPICS if t.per_experiment), key=len
    )
    assert len(longest) <= 249, "Kafka's limit"


@pytest.mark.parametrize("name", ["", "A", "a_b", "a.b", "-a", "a-", "a" * 64, "ä"])
def test_names_that_kafka_would_confuse_are_refused(name):
    with pytest.raises(ValueError, match="expected 1 to 63"):
        check_name(name)


def test_an_experiments_topic_needs_its_name():
    with pytest.raises(ValueError, match="found none"):
        topic_name(TRAJECTORIES)


def test_workers_spread_evenly_over_partitions():
    found = [worker_partition(index, 4) for index in range(8)]
    assert found == [0, 1, 2, 3, 0, 1, 2, 3]
    assert worker_index(worker_name(12)) == 12
    for name in ("", "12", "w", "w-1", "x1"):
        with pytest.raises(ValueError):
            worker_index(name)


def test_the_disk_budget_is_shared_by_the_big_topics():
    experiment = load_file(SAMPLE)
    topics = {topic.name: topic for topic in experiment_topics(experiment)}
    big = [topics[f"rollstream.cartpole-dqn.{s}"] for s in ("trajectories", "replay")]
    held = sum(t.partitions * int(t.config["retention.bytes"]) for t in big)
    assert held == experiment.spec.topics.disk_budget
