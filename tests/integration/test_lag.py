"""The lag that is seen, against what independent clients say of the same groups."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import ExitStack, closing, contextmanager

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from infra.errors import KafkaUnavailable
from infra.kafka.clients import make_admin, make_producer
from infra.kafka.offsets import delete_before
from infra.kafka.topic_admin import TopicConfig, delete_topics, ensure_topics
from infra.monitoring.lag import collector
from infra.monitoring.lag.collector import read_lag
from infra.monitoring.lag.model import Place, Standing
from infra.monitoring.lag.monitor import LagMonitor
from infra.monitoring.lag.unread import Limits
from schemas.topics import REPLAY, TRAJECTORIES, group_name, topic_name
from tests.integration.foreign_groups import commit_many, commit_with, odd_member
from tests.integration.lag_rig import (
    PATIENCE_S,
    Reader,
    described_by_kafka,
    kafka_tool,
    next_report,
    of_group,
    of_partition,
    running_tool,
    wait_until,
)

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """One look waits for brokers on a busy machine: what it says is tested here."""
    monkeypatch.setattr(collector, "PATIENCE_S", PATIENCE_S)
    monkeypatch.setattr(collector, "ONE_LOOK", Limits(64, PATIENCE_S))


@pytest.fixture
def reader(settings, make_topic):
    """Makes a reader of a new topic."""
    with ExitStack() as readers:

        def make(partitions=1, **config):
            topic = make_topic(partitions)
            made = Reader(settings, f"{topic}-group", topic, **config)
            return readers.enter_context(closing(made))

        yield make


@contextmanager
def monitored(settings, *groups, every_s=0.2, **options):
    monitor = LagMonitor(settings, wanted=groups, every_s=every_s, **options)
    monitor.start()
    with closing(monitor):
        yield monitor


def look(settings, reader, **options):
    return read_lag(settings, wanted=[reader.group], **options)


def transactional(settings, topic):
    producer = make_producer(
        settings,
        client_id="test",
        overrides={"transactional.id": f"{topic}-{uuid.uuid4().hex[:6]}"},
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    return producer


def test_lag_is_what_kafkas_own_tool_says(settings, reader):
    found = reader(partitions=4)
    for partition in range(4):
        found.write(10 * partition + 5, partition)
    for partition in range(3):  # nothing is committed in the fourth
        found.commit(3 * partition, partition)
    found.join_alone()
    kafka = described_by_kafka(settings, found.group)
    group = of_group(look(settings, found), found.group)
    assert (group.state, group.members, group.problem) == ("Stable", 1, "")
    assert len(group.partitions) == len(kafka) == 4
    for each in group.partitions:
        row = kafka[each.place.topic, each.place.partition]
        if row["CURRENT-OFFSET"] == "-":
            assert (each.committed, each.lag) == (None, None)
            assert each.verdict.state == "NO_COMMIT"
        else:
            assert each.committed == int(row["CURRENT-OFFSET"])
            assert each.lag == int(row["LAG"])
        assert each.end == int(row["LOG-END-OFFSET"])
        assert each.owner == f"{row['CLIENT-ID']}@{row['HOST'].removeprefix('/')}"


def test_lag_under_load_is_within_one_sample_of_the_truth(settings, reader):
    found = reader(partitions=2)
    stop = threading.Event()

    def load():
        while not stop.is_set():
            for partition in range(2):
                found.producer.produce(found.topic, b"v" * 500, b"k", partition)
            found.producer.flush(PATIENCE_S)

    def all_commit():
        found.pump()
        return all(found.truth(p).committed > 0 for p in range(2))

    found.join_alone()
    writer = threading.Thread(target=load)
    writer.start()
    try:
        with monitored(settings, found.group, every_s=0.1) as monitor:
            wait_until(all_commit, "records of both")
            for _ in range(20):
                before = [found.truth(p) for p in range(2)]
                found.pump()
                report = next_report(monitor)
                after = [found.truth(p) for p in range(2)]
                for p in range(2):
                    each = of_partition(report, found, p)
                    assert before[p].committed <= each.committed <= after[p].committed
                    assert before[p].end <= each.end <= after[p].end
                    assert each.raw_lag == each.end - each.committed
                    assert each.lag == each.raw_lag >= 0
    finally:
        stop.set()
        writer.join()


def test_lag_stays_true_while_members_come_and_go(settings, reader):
    found = reader(partitions=6)
    for partition in range(6):
        found.write(50, partition)
    first = found.join()
    with monitored(settings, found.group, every_s=0.1) as monitor:
        seen = []

        def pumped():
            found.pump()
            seen.append(monitor.report)

        def owned_by(*names):
            pumped()
            group = seen[-1].group(found.group)
            if group is None:
                return False  # before the first look
            owners = {each.owner.split("@")[0] for each in group.partitions}
            return len(group.partitions) == 6 and owners == set(names)

        def all_is_read():
            found.pump(second)
            return all(found.truth(p).committed == 70 for p in range(6))

        wait_until(lambda: owned_by("member-0"), "one holds all")
        for partition in range(6):
            found.write(20, partition)
        second = found.join()
        wait_until(lambda: owned_by("member-0", "member-1"), "two share them")
        found.leave(first)
        wait_until(lambda: owned_by("member-0") or owned_by("member-1"), "one is left")
        wait_until(all_is_read, "all is read")
        for report in seen:
            for group in report.groups:
                for each in group.partitions:
                    assert each.lag is None or 0 <= each.lag <= 70
        last = of_group(next_report(monitor), found.group)
        for each in last.partitions:
            truth = found.truth(each.place.partition)
            assert (each.committed, each.end) == (truth.committed, truth.end)
            assert each.lag == truth.end - truth.committed == 0


def test_a_topic_that_is_made_anew_is_another_one(settings, reader):
    found = reader()
    found.write(50)
    found.commit(40)
    with monitored(settings, found.group) as monitor:
        report = next_report(monitor)
        assert of_partition(report, found).lag == 10
        place = of_partition(report, found).place
        first_id = monitor.window(place).newest.topic_id
        delete_topics(settings, [found.topic])
        ensure_topics(settings, [TopicConfig(found.topic, 1)])
        found.write(5)
        # Kafka forgets what was committed; whoever still has the old offset commits it.
        wait_until(lambda: found.commits(40), "the group commits")
        report = wait_until(
            lambda: _sees(next_report(monitor), found, 5), "the new topic is seen"
        )
        each = of_partition(report, found)
        assert (each.committed, each.end, each.raw_lag) == (40, 5, -35)
        assert each.lag is None
        assert each.verdict.state == "LOST", each.verdict
        samples = monitor.window(place).samples
        assert {sample.topic_id for sample in samples} != {first_id}
        assert len({sample.topic_id for sample in samples}) == 1
        found.commit(5)
        assert of_partition(next_report(monitor), found).lag == 0


def _sees(report, found, end):
    group = report.group(found.group)
    places = group.partitions if group else ()
    return report if any(p.end == end and p.committed for p in places) else None


def test_partitions_that_are_added_are_seen(settings, reader):
    found = reader(partitions=1)
    found.write(3)
    found.commit(1)
    with monitored(settings, found.group) as monitor:
        assert len(of_group(next_report(monitor), found.group).partitions) == 1
        admin = make_admin(settings)
        asked = admin.create_partitions([NewPartitions(found.topic, 3)])
        asked[found.topic].result(PATIENCE_S)
        wait_until(lambda: found.commits(0, 2), "the new partition is there")
        report = next_report(monitor)
        assert of_partition(report, found, 2).committed == 0
        assert of_partition(report, found, 0).lag == 2


def test_a_topic_that_is_deleted_is_left_out(settings, reader):
    found = reader()
    found.write(3)
    found.commit(1)
    with monitored(settings, found.group) as monitor:
        place = of_partition(next_report(monitor), found).place
        delete_topics(settings, [found.topic])
        wait_until(
            lambda: not of_group(next_report(monitor), found.group).partitions,
            "nothing is left to read",
        )
        wait_until(lambda: monitor.window(place) is None, "its samples are forgotten")
        ensure_topics(settings, [TopicConfig(found.topic, 1)])


def test_a_member_that_has_committed_nothing_has_no_lag_yet(settings, reader):
    found = reader(partitions=2)
    found.write(7, 1)
    member = found.join()
    wait_until(lambda: found.pump(member, commit=False), "records")
    group = of_group(look(settings, found), found.group)
    assert [each.place.partition for each in group.partitions] == [0, 1]
    for each in group.partitions:
        assert (each.committed, each.lag, each.lag_s) == (None, None, None)
        assert each.verdict.state in ("NO_COMMIT", "EMPTY")
        assert each.owner == "member-0@127.0.0.1"


def test_a_group_of_the_new_protocol_is_described_as_well(settings, reader):
    found = reader(
        partitions=2,
        **{
            "group.protocol": "consumer",
            "session.timeout.ms": None,
            "heartbeat.interval.ms": None,
        },
    )
    found.write(8, 1)
    member, counts = found.join_alone(), []

    def reads_all():
        counts.append(found.pump(member, commit=False))
        return sum(counts) >= 8

    wait_until(reads_all, "records")
    commit_with(member, [TopicPartition(found.topic, 1, 6)])
    group = of_group(look(settings, found), found.group)
    assert (group.state, group.members) == ("Stable", 1)
    one = of_partition(look(settings, found), found, 1)
    assert (one.lag, one.owner) == (2, "member-0@127.0.0.1")


@pytest.mark.parametrize(
    "assigned",
    [
        "00",
        "0000 00000001 0003 742074 00000001 00000000 ffffffff",  # a topic "t t"
        "0000 00000001 0000 00000001 00000000 ffffffff",  # a topic ""
    ],
)
def test_a_group_whose_assignment_is_odd_spoils_no_other(settings, reader, assigned):
    found = reader()
    found.write(9)
    found.commit(4)
    odd = f"{found.group}-odd"
    with odd_member(settings, odd, bytes.fromhex(assigned)):
        report = read_lag(settings, wanted=[found.group, odd])
    assert of_partition(report, found).lag == 5
    assert of_group(report, found.group).problem == ""
    group = of_group(report, odd)
    assert (group.state, group.members, group.partitions) == ("Stable", 1, ())
    assert "makes no sense" in group.problem


def test_groups_that_share_records_are_left_out(settings, reader):
    found = reader()
    found.write(1)
    shares = f"{found.group}-shares"
    share_groups = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    with running_tool(
        settings,
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--topic", found.topic, "--group", shares),
    ):
        wait_until(
            lambda: shares in kafka_tool(settings, share_groups, "--list"), "a member"
        )
        report = read_lag(settings, wanted=lambda group: group.startswith(found.topic))
    assert report.problem == "" and report.group(shares) is None


def test_the_mark_of_a_transaction_is_no_lag(settings, reader):
    found = reader()
    producer = transactional(settings, found.topic)
    producer.produce(found.topic, b"v", b"k", 0)
    producer.commit_transaction(PATIENCE_S)
    found.wait_for_end(2)
    found.commit(1)  # behind the record, before the mark
    once = of_partition(look(settings, found), found)
    assert (once.end, once.raw_lag, once.lag) == (2, 1, 0)
    assert once.verdict.state == "OK"
    with monitored(settings, found.group) as monitor:
        # It has to stand still first.
        wait_until(
            lambda: of_partition(next_report(monitor), found).lag == 0, "a mark alone"
        )
        producer.begin_transaction()
        producer.produce(found.topic, b"v", b"k", 0)
        producer.commit_transaction(PATIENCE_S)
        wait_until(
            lambda: of_partition(next_report(monitor), found).lag == 1,
            "of mark, record and mark one is a record",
        )


def test_what_an_open_transaction_holds_back_is_told_apart(settings, reader):
    found = reader()
    found.write(3)
    found.commit(2)
    producer = transactional(settings, found.topic)
    for _ in range(4):
        producer.produce(found.topic, b"v", b"k", 0)
    assert producer.flush(PATIENCE_S) == 0
    each = of_partition(look(settings, found), found)
    assert (each.end, each.open_records, each.lag) == (3, 4, 1)
    producer.abort_transaction(PATIENCE_S)
    found.wait_for_end(8)
    # Aborted records are no lag either: four, and the mark.
    found.commit(3)
    each = of_partition(look(settings, found), found)
    assert (each.end, each.open_records, each.raw_lag, each.lag) == (8, 0, 5, 0)


def test_what_expired_unread_is_lost(settings, reader):
    found = reader()
    found.write(30)
    found.commit(10)
    admin = make_admin(settings)
    (future,) = delete_before(admin, {(found.topic, 0): 25}, PATIENCE_S).values()
    future.result(PATIENCE_S)
    each = of_partition(look(settings, found), found)
    assert (each.begin, each.committed, each.raw_lag, each.lag) == (25, 10, 20, 5)
    assert each.verdict.state == "LOST"
    assert each.retention_used == 1.0


def test_the_age_of_lag_is_that_of_its_first_record(settings, make_topic):
    topic = make_topic(message_timestamp_type="CreateTime")
    with closing(Reader(settings, f"{topic}-group", topic)) as found:
        now_ms = time.time_ns() // 10**6
        for number, ago_s in enumerate((500, 400, 300)):
            found.producer.produce(
                topic, b"v", str(number), 0, timestamp=now_ms - ago_s * 1000
            )
        assert found.producer.flush(PATIENCE_S) == 0
        found.commit(1)
        each = of_partition(look(settings, found), found)
        assert each.lag_s_method == "record"
        assert 395 < each.lag_s < 490


def test_our_group_is_looked_at_before_it_commits(settings, reader):
    name = f"lag-{uuid.uuid4().hex[:8]}"
    topics = {"processor": TRAJECTORIES, "learner": REPLAY, "archiver": TRAJECTORIES}
    ensure_topics(
        settings,
        [TopicConfig(topic_name(each, name), 3) for each in (TRAJECTORIES, REPLAY)],
    )
    groups = {role: group_name(name, role) for role in topics}
    report = read_lag(settings, wanted=groups.values())
    delete_topics(settings, [topic_name(each, name) for each in (TRAJECTORIES, REPLAY)])
    for role, topic in topics.items():
        group = of_group(report, groups[role])
        assert [each.place for each in group.partitions] == [
            Place(groups[role], topic_name(topic, name), number) for number in range(3)
        ]
        assert {each.committed for each in group.partitions} == {None}


def test_a_position_counts_where_a_role_tells_it(settings, reader):
    found = reader()
    found.write(20)
    found.commit(4)
    place = Place(found.group, found.topic, 0)
    told = {place: Standing(position=15, held=6, at_s=time.time())}
    each = of_partition(look(settings, found, standings=told), found)
    assert (each.current, each.committed, each.held) == (15, 4, 6)
    assert (each.lag, each.raw_lag, each.unsaved) == (5, 16, 11)
    rows = {found.group: 64.0}
    each = of_partition(
        look(settings, found, standings=told, rows_per_record=rows), found
    )
    assert each.lag_env_steps == 5 * 64


def test_groups_that_nobody_has_heard_of_are_there_and_empty(settings):
    report = read_lag(settings, wanted=["no-such-group"])
    assert of_group(report, "no-such-group").partitions == ()


def test_brokers_that_do_not_answer_are_told_of(settings, monkeypatch):
    monkeypatch.setattr(collector, "PATIENCE_S", 0.5)
    nowhere = settings.at("127.0.0.1:1", "127.0.0.1:1")
    with pytest.raises(KafkaUnavailable, match="do not answer"):
        read_lag(nowhere, wanted=["some-group"])
    with monitored(nowhere, "some-group") as monitor:
        wait_until(lambda: monitor.report.problem, "it says so")
        assert monitor.report.at_s == 0


def test_the_monitor_outlives_a_broker(settings, local_cluster, reader):
    found = reader()
    found.write(9)
    found.commit(4)
    with monitored(settings, found.group) as monitor:
        assert of_partition(next_report(monitor), found).lag == 5
        local_cluster.kill_broker()
        try:
            wait_until(lambda: monitor.report.problem, "it says that nobody answers")
            old = monitor.report
        finally:
            local_cluster.restart_broker()
        assert of_partition(old, found).lag == 5, "what was known stays"
        found.write(2)
        report = next_report(monitor)
        each = of_partition(report, found)
        assert (each.end, each.lag) == (11, 7)
        assert report.problem == "" and report.at_s > old.at_s


def test_two_hundred_groups_of_twelve_partitions_are_read_at_once(settings, make_topic):
    topics = [make_topic(12) for _ in range(20)]
    groups = []
    for topic in topics:
        mine = [f"{topic}-{n}" for n in range(10)]
        commit_many(
            settings, {each: dict.fromkeys(range(12), 0) for each in mine}, topic
        )
        groups += mine
    began_s = time.monotonic()
    report = read_lag(settings, wanted=groups)
    took_s = time.monotonic() - began_s
    assert sum(len(group.partitions) for group in report.groups) == 2_400
    assert {group.problem for group in report.groups} == {""}
    print(
        f"\n200 groups x 12 partitions: {took_s:.2f} s, brokers {report.took_s:.2f} s"
    )
    assert took_s < PATIENCE_S  # on a machine that does nothing else, half a second
