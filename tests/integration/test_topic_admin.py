import pytest

from infra.errors import TopicDrift, TopicError
from infra.kafka.topic_admin import (
    TopicConfig,
    alter_config,
    delete_topics,
    describe_topics,
    ensure_topics,
)

pytestmark = pytest.mark.kafka


def test_creating_twice_changes_nothing(settings, make_topic):
    name = make_topic(2, **{"cleanup.policy": "compact"})
    before = describe_topics(settings, [name])
    [report] = ensure_topics(
        settings, [TopicConfig(name, 2, {"cleanup.policy": "compact"})]
    )
    assert not report.created
    assert describe_topics(settings, [name]) == before


def test_other_partitions_are_drift(settings, make_topic):
    name = make_topic(2)
    with pytest.raises(TopicDrift, match="partitions is 2, expected 3.*To mend"):
        ensure_topics(settings, [TopicConfig(name, 3)])


@pytest.mark.parametrize(
    ("key", "expected", "found"),
    [
        ("cleanup.policy", "compact", "delete"),
        ("message.timestamp.type", "LogAppendTime", "CreateTime"),
    ],
)
def test_other_critical_config_is_drift(settings, topic, key, expected, found):
    declared = TopicConfig(topic, 1, {key: expected})
    with pytest.raises(TopicDrift, match=f"{topic}: {key} is {found}, expected"):
        ensure_topics(settings, [declared])


def test_other_optional_config_is_reported_and_left(settings, topic):
    declared = TopicConfig(topic, 1, {"retention.ms": "1234"})
    [report] = ensure_topics(settings, [declared])
    assert report.differing == {"retention.ms": "604800000"}
    assert describe_topics(settings, [topic])[0].config["retention.ms"] == "604800000"


def test_refused_optional_config_is_reported_and_left_out(settings, make_topic):
    topic = make_topic()
    delete_topics(settings, [topic])
    declared = TopicConfig(
        topic,
        1,
        {
            "cleanup.policy": "compact",
            "no.such.setting": "1",
            "retention.ms": "5000",
        },
    )
    [report] = ensure_topics(settings, [declared])
    assert report.created
    assert set(report.refused) == {"no.such.setting"}
    assert describe_topics(settings, [topic])[0].config["retention.ms"] == "5000"


def test_impossible_name_is_an_error(settings):
    with pytest.raises(TopicError, match=r"topic a/b cannot be created"):
        ensure_topics(settings, [TopicConfig("a/b", 1)])


def test_deleting_is_idempotent_and_gives_a_new_id(settings, make_topic):
    name = make_topic()
    [old] = describe_topics(settings, [name])
    delete_topics(settings, [name])
    delete_topics(settings, [name])
    assert describe_topics(settings, [name]) == []
    ensure_topics(settings, [TopicConfig(name, 1)])
    assert describe_topics(settings, [name])[0].topic_id != old.topic_id


def test_description_has_offsets_of_each_partition(settings, make_topic):
    [found] = describe_topics(settings, [make_topic(3)])
    assert (found.beginning_offsets, found.end_offsets) == ((0, 0, 0), (0, 0, 0))
    assert found.replication == 1


def test_a_changed_setting_leaves_the_others(settings, make_topic):
    name = make_topic(1, retention_bytes="1000", segment_bytes="20000000")
    alter_config(settings, name, {"retention.bytes": "5000"})
    [found] = describe_topics(settings, [name])
    assert found.config["retention.bytes"] == "5000"
    assert found.config["segment.bytes"] == "20000000"
    with pytest.raises(TopicError, match="cannot be set"):
        alter_config(settings, name, {"cleanup.policy": "burn"})
